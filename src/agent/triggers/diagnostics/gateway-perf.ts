import { HostError } from "../../../errors.ts";
import type { Clock } from "../../../host/clock.ts";
import { GatewayPerf } from "../../../protocol/triggers/bodies.ts";
import type { StreamTrigger } from "../execution/trigger.ts";
import {
  neededPath,
  neededPeer,
  notConnected,
  silenceOf,
  tunnelPathText,
  type Tunnels,
  type UploadProgress,
} from "./tunnels.ts";

const RUN_MS = 300_000;
const DOT_BYTES = 1_000_000;
/** Limit of losses shown per message. */
const MAX_SHOWN_LOSSES = 50;

/** Uploads to a peer inside the tunnel and reports the rate: a dot per megabyte that arrived, `!` for a loss. It saturates the uplink. */
export function gatewayPerf(tunnels: Tunnels, clock: Clock, runMs = RUN_MS): StreamTrigger<GatewayPerf> {
  return {
    event: "gateway-perf",
    kind: "stream",
    request: GatewayPerf,
    deadlineMs: RUN_MS,
    needsDataPlane: true,
    readOnly: true,
    agents: true,
    exclusive: "gateway-perf",
    async handle({ dest, gwPath, bytes, messageSize, windowSize }, { signal, emit }) {
      const nodes = tunnels.nodes();
      const peer = neededPeer(nodes, dest);
      const tunnelPath = neededPath(await tunnels.mesh(signal), gwPath);
      const limit = new AbortController();
      const tooLong = new HostError("timeout", `the upload took longer than ${runMs / 1000} s`);
      const cancelTimer = clock.after(runMs, () => limit.abort(tooLong));
      const meter = new Dots();
      let shown = emit({ kind: "stdout", data: `Sending ${bytes} bytes to ${peer.fqdn}\n` });
      const onProgress = (progress: UploadProgress): void => {
        const data = meter.next(progress);
        if (data !== "") shown = shown.then(() => emit({ kind: "stdout", data }));
      };
      try {
        const request = { peer: peer.uid, ...tunnelPath, bytes, messageBytes: messageSize, windowBytes: windowSize };
        const answer = await tunnels.perf(request, onProgress, AbortSignal.any([signal, limit.signal]));
        onProgress({ bytes: answer.bytes, lost: 0 });
        await shown;
        const by = `by ${tunnelPathText(nodes, answer)}\n`;
        await emit({ kind: "stdout", data: `${meter.isInLine ? "\n" : ""}${by}${resultLine(answer)}` });
        return { exitCode: 0 };
      } catch (error) {
        await shown;
        if (meter.isInLine) await emit({ kind: "stdout", data: "\n" });
        signal.throwIfAborted();
        if (limit.signal.aborted) throw tooLong;
        if (silenceOf(error) === "not-connected") throw notConnected(peer, error);
        throw error;
      } finally {
        cancelTimer();
      }
    },
  };
}

/** Formats the result: bytes that arrived, time, and rate in decimal megabits. */
export function resultLine({ bytes, ms }: { readonly bytes: number; readonly ms: number }): string {
  const rate = ms <= 0 ? 0 : (bytes * 8) / ms / 1000;
  return `${bytes} bytes in ${(ms / 1000).toFixed(3)} seconds, rate=${rate.toFixed(2)} Mbps\n`;
}

/** Returns the progress since the last call. */
class Dots {
  isInLine = false;
  #dots = 0;
  #lost = 0;

  next({ bytes, lost }: UploadProgress): string {
    const dots = Math.max(0, Math.floor(bytes / DOT_BYTES) - this.#dots);
    const losses = Math.max(0, lost - this.#lost);
    this.#dots += dots;
    this.#lost += losses;
    this.isInLine ||= dots > 0 || losses > 0;
    return "!".repeat(Math.min(losses, MAX_SHOWN_LOSSES)) + ".".repeat(dots);
  }
}
