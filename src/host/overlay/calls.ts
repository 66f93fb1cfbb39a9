import { randomUUID } from "node:crypto";
import type { z } from "zod";
import { HostError } from "../../errors.ts";
import type { MeshState } from "../../protocol/overlay/mesh.ts";
import type { OverlayFlowFilter, OverlayMethods, OverlayNotices } from "../../protocol/overlay/overlay.ts";
import { RemoteError } from "../../protocol/channel/rpc.ts";
import type { ControlClient } from "./control.ts";

export type EchoRequest = z.infer<OverlayMethods["echo"]["params"]>;
export type EchoAnswer = z.infer<OverlayMethods["echo"]["result"]>;
export type PerfRequest = Omit<z.infer<OverlayMethods["perf.run"]["params"]>, "id">;
export type PerfAnswer = z.infer<OverlayMethods["perf.run"]["result"]>;
export type LiveFlowList = z.infer<OverlayMethods["flows.list"]["result"]>;
/** Bytes that arrived and that were lost, so far. */
export type PerfProgress = Omit<z.infer<OverlayNotices["perf.progress"]["params"]>, "id">;

/** What an overlay can be asked about other nodes, over whichever connection to it there is. */
export class OverlayCalls {
  readonly #client: () => ControlClient | undefined;
  readonly #running = new Map<string, (progress: PerfProgress) => void>();

  constructor(client: () => ControlClient | undefined) {
    this.#client = client;
  }

  /** How the ways to other nodes stand; undefined while there is no overlay. @throws {HostError} `overlay-older`; else as `RpcPeer.request`. */
  async mesh(signal: AbortSignal): Promise<MeshState | undefined> {
    return this.#client()?.peer.request("mesh.get", {}, signal).catch(sayOlder);
  }

  /**
   * Has bytes go to a peer and back inside the tunnel.
   * @throws {HostError} `overlay-absent`, `overlay-older`; {RemoteError} `timeout`, `not-found`, `not-connected`.
   */
  async echo(request: EchoRequest, signal: AbortSignal): Promise<EchoAnswer> {
    return this.#needed().peer.request("echo", request, signal).catch(sayOlder);
  }

  /** Uploads bytes to a peer and tells how far it is; aborting ends it there too. @throws as `echo`; {RemoteError} `cancelled`. */
  async perf(
    request: PerfRequest,
    onProgress: (progress: PerfProgress) => void,
    signal: AbortSignal,
  ): Promise<PerfAnswer> {
    const { peer } = this.#needed();
    const id = randomUUID();
    // A connection that has ended has nothing left to cancel.
    const cancel = (): void => void peer.request("perf.cancel", { id }).catch(() => undefined);
    this.#running.set(id, onProgress);
    signal.addEventListener("abort", cancel, { once: true });
    try {
      return await peer.request("perf.run", { ...request, id }, signal).catch(sayOlder);
    } finally {
      signal.removeEventListener("abort", cancel);
      this.#running.delete(id);
    }
  }

  /** The flows that run; none while there is no overlay. @throws {HostError} `overlay-older`. */
  async flows(filter: OverlayFlowFilter, limit: number, signal: AbortSignal): Promise<LiveFlowList> {
    return this.#flows("flows.list", filter, limit, signal);
  }

  /** Cuts the flows that match, and answers which they were. @throws as `flows`. */
  async cutFlows(filter: OverlayFlowFilter, limit: number, signal: AbortSignal): Promise<LiveFlowList> {
    return this.#flows("flows.cut", filter, limit, signal);
  }

  async #flows(call: "flows.list" | "flows.cut", filter: OverlayFlowFilter, limit: number, signal: AbortSignal) {
    const answer = this.#client()?.peer.request(call, { filter, limit }, signal);
    return (await answer?.catch(sayOlder)) ?? { flows: [], total: 0 };
  }

  /** Has every path looked at, since the network changed; nobody waits for it. */
  wake(): void {
    // An overlay that does not know it finds out by its own probes, later.
    this.#client()
      ?.peer.request("mesh.wake", {})
      .catch(() => undefined);
  }

  /** Passes on what an overlay says of an upload. */
  progressed({ id, ...progress }: z.infer<OverlayNotices["perf.progress"]["params"]>): void {
    this.#running.get(id)?.(progress);
  }

  #needed(): ControlClient {
    const client = this.#client();
    if (client === undefined) throw new HostError("overlay-absent", "the overlay is not running");
    return client;
  }
}

/** Whether an overlay does not know a call at all. */
export function isUnknownCall(error: unknown): boolean {
  return error instanceof RemoteError && error.code === "unknown-method";
}

/** That the overlay knows nothing of other nodes. */
export function olderOverlay(cause?: unknown): HostError {
  const message = "the overlay that runs is older than this agent and does not know this call: restart its service";
  return new HostError("overlay-older", message, cause === undefined ? {} : { cause });
}

function sayOlder(error: unknown): never {
  throw isUnknownCall(error) ? olderOverlay(error) : error;
}
