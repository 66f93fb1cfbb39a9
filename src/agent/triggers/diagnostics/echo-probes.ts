import { toError } from "../../../errors.ts";
import type { Clock } from "../../../host/clock.ts";
import { silenceOf, type EchoAnswer, type EchoRequest, type Tunnels } from "./tunnels.ts";

export interface ProbePlan {
  readonly request: Omit<EchoRequest, "timeoutMs">;
  readonly count: number;
  readonly intervalMs: number;
}

/** Result of one probe, numbered from 0. */
export type Probe =
  | ({ readonly seq: number } & EchoAnswer)
  | { readonly seq: number; readonly silence: "timeout" | "not-connected"; readonly error: Error };

/** Timeout of an answer, unless the interval is longer. */
const ANSWER_MS = 5000;
/** Maximum duration of a run. */
const RUN_MS = 600_000;

/** Sends probes to a peer one after the other, each at its time or after the previous one; a lost probe is a result. */
export async function* probes(
  tunnels: Pick<Tunnels, "echo">,
  clock: Clock,
  { request, count, intervalMs }: ProbePlan,
  signal: AbortSignal,
): AsyncGenerator<Probe, void> {
  const startedAt = clock.elapsed();
  const timeoutMs = Math.min(60_000, Math.max(intervalMs, ANSWER_MS));
  for (let seq = 0; seq < count; seq += 1) {
    const sentAt = clock.elapsed();
    yield await probe(tunnels, seq, { ...request, timeoutMs }, signal);
    if (seq + 1 === count || sentAt + intervalMs - startedAt > RUN_MS) return;
    await clock.sleep(Math.max(0, sentAt + intervalMs - clock.elapsed()), signal);
  }
}

async function probe(
  tunnels: Pick<Tunnels, "echo">,
  seq: number,
  request: EchoRequest,
  signal: AbortSignal,
): Promise<Probe> {
  try {
    return { seq, ...(await tunnels.echo(request, signal)) };
  } catch (error) {
    signal.throwIfAborted();
    return { seq, silence: silenceOf(error), error: toError(error) };
  }
}

/** Counts probes and sums them up like ping(8). */
export class ProbeTally {
  sent = 0;
  readonly #rtts: { count: number; min: number; max: number; sum: number } = {
    count: 0,
    min: Infinity,
    max: 0,
    sum: 0,
  };

  get received(): number {
    return this.#rtts.count;
  }

  add(probe: Probe): void {
    this.sent += 1;
    if ("silence" in probe) return;
    const { rttMs } = probe;
    this.#rtts.count += 1;
    this.#rtts.sum += rttMs;
    this.#rtts.min = Math.min(this.#rtts.min, rttMs);
    this.#rtts.max = Math.max(this.#rtts.max, rttMs);
  }

  /** Summary of two lines; one without any answer. */
  summary(peer: string): string {
    const { count, min, max, sum } = this.#rtts;
    const lost = this.sent === 0 ? 0 : Math.round(((this.sent - count) / this.sent) * 1000) / 10;
    const head = `--- ${peer}: ${this.sent} sent, ${count} answered, ${lost}% lost\n`;
    const times = [min, sum / count, max].map((ms) => ms.toFixed(2)).join("/");
    return count === 0 ? head : `${head}rtt min/avg/max = ${times} ms\n`;
  }
}
