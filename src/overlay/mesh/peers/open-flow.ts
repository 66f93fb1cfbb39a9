import { randomUUID } from "node:crypto";
import { constants, type ClientHttp2Stream, type IncomingHttpHeaders } from "node:http2";
import type { Clock } from "../../../host/clock.ts";
import type { OverlayReason } from "../../../protocol/overlay/overlay.ts";
import type { Dial } from "../../dial/dial.ts";
import type { RemoteRequest, RemoteUser } from "../../listeners/remote.ts";
import { codeOf, reasonOfCode, resetStream } from "../../flow/stream-reset.ts";
import type { ReceiveBuffers } from "../transport/receive-buffer.ts";
import { requestTaken } from "./byte-agreement.ts";
import type { Tunnel } from "./tunnel.ts";
import { reasonOf } from "../paths/failures.ts";
import type { Tunnels } from "./tunnels.ts";
import { flowHeaders, refusalOf } from "../transport/wire.ts";

/** Limit of attempts to open a flow. It is retried if the tunnel closes before the answer, as no bytes were sent yet. */
const ATTEMPTS = 3;

interface OpenFlowParts {
  readonly receiveBuffers: Pick<ReceiveBuffers, "watch">;
  readonly clock: Pick<Clock, "after">;
}

/** Opens a flow to another node on an existing tunnel or a new one. */
export function openFlow(
  tunnels: Tunnels,
  { receiveBuffers, clock }: OpenFlowParts,
  request: RemoteRequest,
  user: RemoteUser,
): Dial {
  const flow = new OpeningFlow(tunnels, { receiveBuffers, clock }, request, user);
  void flow.begin();
  return flow;
}

class OpeningFlow implements Dial {
  readonly #tunnels: Tunnels;
  readonly #parts: OpenFlowParts;
  readonly #request: RemoteRequest;
  readonly #user: RemoteUser;
  readonly #flow: string;
  #stream: ClientHttp2Stream | undefined;
  #tunnel: Tunnel | undefined;
  #left = ATTEMPTS;
  #isOver = false;

  constructor(tunnels: Tunnels, parts: OpenFlowParts, request: RemoteRequest, user: RemoteUser) {
    this.#tunnels = tunnels;
    this.#parts = parts;
    this.#request = request;
    this.#flow = request.flow ?? randomUUID();
    this.#user = user;
  }

  cancel(): void {
    this.#isOver = true;
    if (this.#stream !== undefined) resetStream(this.#stream, codeOf("removed"));
  }

  /** Never rejects. */
  async begin(): Promise<void> {
    this.#left -= 1;
    try {
      const tunnel = await this.#tunnels.reserve(this.#request.target.peer);
      if (this.#isOver) tunnel.giveUp();
      else this.#open(tunnel);
    } catch (error) {
      this.#fail(reasonOf(error));
    }
  }

  #open(tunnel: Tunnel): void {
    const { target, ...request } = this.#request;
    const headers = flowHeaders(target.peer, { ...request, service: target.label, flow: this.#flow });
    const stream = tunnel.open(headers, { endStream: false });
    if (stream === undefined) return this.#again("tunnel-lost");
    this.#tunnel = tunnel;
    this.#stream = stream;
    stream.on("error", ignore).once("response", this.#onResponse).once("close", this.#onClose);
  }

  readonly #onResponse = (headers: IncomingHttpHeaders): void => {
    const stream = this.#stream;
    const tunnel = this.#tunnel;
    if (this.#isOver || stream === undefined || tunnel === undefined) return;
    const refusal = refusalOf(headers);
    stream.off("close", this.#onClose);
    if (refusal !== undefined) {
      resetStream(stream, constants.NGHTTP2_NO_ERROR);
      return this.#fail(refusal);
    }
    this.#isOver = true;
    const { receiveBuffers, clock } = this.#parts;
    receiveBuffers.watch(tunnel.peer, stream);
    this.#user.opened(
      stream,
      () => tunnel.lost,
      (taken) => requestTaken(tunnel, clock, this.#flow, taken),
    );
  };

  readonly #onClose = (): void => {
    const code = this.#stream?.rstCode ?? 0;
    const lost = this.#tunnel?.lost;
    // A refused stream was not processed (RFC 9113 §8.7), as when the other side shuts down.
    if (lost === "tunnel-lost" || code === constants.NGHTTP2_REFUSED_STREAM) return this.#again("tunnel-lost");
    this.#fail(lost ?? reasonOfCode(code));
  };

  #again(reason: OverlayReason): void {
    if (this.#isOver) return;
    if (this.#left <= 0) return this.#fail(reason);
    this.#stream = undefined;
    void this.begin();
  }

  #fail(reason: OverlayReason): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#user.failed(reason);
  }
}

function ignore(): void {}
