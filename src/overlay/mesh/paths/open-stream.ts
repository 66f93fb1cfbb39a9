import { constants, type ClientHttp2Session, type ClientHttp2Stream, type OutgoingHttpHeaders } from "node:http2";
import { SessionError } from "../../../errors.ts";
import type { Clock } from "../../../host/clock.ts";
import { OverlayReason } from "../../../protocol/overlay/overlay.ts";

/** Time limit of the answer; a dead session is noticed earlier. */
const ANSWER_MS = 5000;

/**
 * Opens a stream by CONNECT (RFC 9113 §8.5) and waits for status 200. The stream has an `error` listener.
 * @throws {SessionError} with the reason of the other side, `tunnel-lost` when the session ends, `connect-timeout`.
 */
export function openStream(
  clock: Clock,
  session: ClientHttp2Session,
  headers: OutgoingHttpHeaders,
  signal: AbortSignal,
): Promise<ClientHttp2Stream> {
  return new Promise((resolve, reject) => {
    signal.throwIfAborted();
    const stream = session.request({ ":method": "CONNECT", ...headers }, { endStream: false });
    const finish = (act: () => void): void => {
      cancelTimer();
      signal.removeEventListener("abort", abort);
      stream.off("response", answered).off("close", closed);
      act();
    };
    const giveUp = (reason: unknown): void =>
      finish(() => {
        stream.close(constants.NGHTTP2_CANCEL);
        reject(reason);
      });
    const abort = (): void => giveUp(signal.reason);
    const answered = (answer: Record<string, unknown>): void => {
      const status = Number(answer[":status"]);
      if (status === 200) finish(() => resolve(stream));
      else giveUp(new SessionError(reasonOf(answer["holdfast-reason"], status), `the gateway answered ${status}`));
    };
    let failure: Error | undefined;
    const closed = (): void =>
      finish(() =>
        reject(
          failure instanceof SessionError
            ? failure
            : new SessionError("tunnel-lost", "the stream ended before it was answered", { cause: failure }),
        ),
      );
    stream.on("error", (error: Error) => (failure ??= error));
    stream.on("response", answered).on("close", closed);
    signal.addEventListener("abort", abort);
    const cancelTimer = clock.after(ANSWER_MS, () =>
      giveUp(new SessionError("connect-timeout", "the gateway did not answer in time")),
    );
  });
}

function reasonOf(text: unknown, status: number): OverlayReason {
  const given = OverlayReason.safeParse(text);
  if (given.success) return given.data;
  if (status === 502) return "peer-absent";
  return status === 403 || status === 508 ? "relay-refused" : status === 503 ? "out-of-resources" : "other";
}
