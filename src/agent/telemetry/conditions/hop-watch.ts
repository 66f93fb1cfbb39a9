import type { Logger } from "pino";
import { HostError, toError } from "../../../errors.ts";
import type { Clock } from "../../../host/clock.ts";
import type { Exec } from "../../../host/process/exec.ts";
import type { HopProtocol } from "../../../protocol/sections/gateway/fields.ts";
import { mergeHops, parseHops, type Hop } from "./hops.ts";

/** A path to a gateway whose hops are traced. */
export interface HopTarget {
  readonly gateway: string;
  readonly path: string;
  readonly ip: string;
  readonly port: number;
  readonly local?: string;
  readonly protocol: HopProtocol;
  /** Payload of a probe in bytes. */
  readonly payload: number;
}

/** Paths to trace, and the interval. */
export interface HopWish {
  readonly intervalMs: number;
  readonly targets: readonly HopTarget[];
}

export interface HopWatchOptions {
  readonly clock: Clock;
  readonly log: Logger;
  readonly exec: Pick<Exec, "run">;
  readonly wish: () => HopWish;
  /** True if this process may send probes. */
  readonly isPermitted: () => boolean;
  /** Reports once why hops are wanted but unavailable, and again if mtr disappears. */
  readonly onUnable: (why: string) => void;
}

/** Traces paths to gateways with mtr(8), one after the other, from the first refresh on while any is wanted. */
export interface HopWatch {
  /** Re-evaluates the paths to trace. */
  refresh(): void;
  /** Returns and removes the results of a path. */
  take(gateway: string, path: string): readonly Hop[];
  close(): void;
}

const DEADLINE_MS = 60_000;
const MAX_OUTPUT = 64 * 1024;
/** Limit of stored runs per path and minute. */
const MAX_RUNS = 16;

export function hopWatch({ clock, log, exec, wish, isPermitted, onUnable }: HopWatchOptions): HopWatch {
  const ending = new AbortController();
  const runs = new Map<string, (readonly Hop[])[]>();
  let cancelTimer: (() => void) | undefined;
  let isRunning = false;
  let isUnable = false;
  /** True if the last run found no mtr. The next run retries, since it may have been installed. */
  let isMissing = false;

  function unable(why: string): void {
    isUnable = true;
    onUnable(why);
  }

  function arm(delayMs: number): void {
    if (ending.signal.aborted || isUnable || isRunning || cancelTimer !== undefined) return;
    if (wish().targets.length === 0) return;
    if (!isPermitted()) return unable("tracing needs the capability CAP_NET_RAW, which this agent does not have");
    cancelTimer = clock.after(delayMs, () => {
      cancelTimer = undefined;
      isRunning = true;
      const from = clock.elapsed();
      void traceAll().finally(() => {
        isRunning = false;
        arm(Math.max(0, from + wish().intervalMs - clock.elapsed()));
      });
    });
  }

  async function traceAll(): Promise<void> {
    const { targets } = wish();
    const keys = new Set(targets.map(keyOf));
    for (const key of runs.keys()) if (!keys.has(key)) runs.delete(key);
    for (const target of targets) {
      if (ending.signal.aborted || isUnable) return;
      try {
        await trace(target);
      } catch (error) {
        if (ending.signal.aborted) return;
        if (error instanceof HostError && error.code === "tool-missing") {
          if (!isMissing) onUnable("mtr is not installed, and paths to gateways cannot be traced; install mtr");
          isMissing = true;
          return;
        }
        log.debug({ gateway: target.gateway, err: toError(error) }, "no hops");
      }
    }
  }

  async function trace(target: HopTarget): Promise<void> {
    const bounds = { signal: ending.signal, deadlineMs: DEADLINE_MS, maxOutputBytes: MAX_OUTPUT };
    const { exitCode, stdout, stderr } = await exec.run("mtr", mtrArguments(target), bounds);
    isMissing = false;
    if (exitCode !== 0) {
      if (/permi|privileg|raw socket|not permitted/i.test(stderr))
        unable(`mtr is not permitted to trace: ${stderr.slice(0, 200)}`);
      else log.debug({ gateway: target.gateway, exitCode, stderr: stderr.slice(0, 200) }, "mtr failed");
      return;
    }
    const hops = parseHops(stdout);
    if (hops === undefined) return log.debug({ gateway: target.gateway }, "mtr returned no report");
    const key = keyOf(target);
    runs.set(key, [...(runs.get(key) ?? []), hops].slice(-MAX_RUNS));
  }

  return {
    refresh: () => arm(0),
    take(gateway, path) {
      const key = keyOf({ gateway, path });
      const found = runs.get(key) ?? [];
      runs.delete(key);
      return mergeHops(found);
    },
    close() {
      ending.abort();
      cancelTimer?.();
    },
  };
}

/**
 * Builds the arguments: three probes per hop, one second apart, sent like the tunnel's packets to the gateway's port, unless ICMP. Pure.
 */
export function mtrArguments({ ip, port, local, protocol, payload }: HopTarget): readonly string[] {
  return [
    "--json",
    // mtr(8) cannot probe within a TCP session (SACK); it sends TCP segments of its own.
    ...(protocol === "icmp" ? [] : ["--tcp", "-P", String(port)]),
    "-n",
    "-c",
    "3",
    "-i",
    "1",
    ...(payload > 0 ? ["-s", String(Math.min(9000, Math.max(28, payload + HEADERS[protocol])))] : []),
    ...(local === undefined ? [] : ["-a", local]),
    "--",
    ip,
  ];
}

/** Bytes of the IP and transport headers, which mtr(8) includes in the size. */
const HEADERS: Readonly<Record<HopProtocol, number>> = { icmp: 28, syn: 40, sack: 40 };

function keyOf({ gateway, path }: Pick<HopTarget, "gateway" | "path">): string {
  return `${gateway} ${path}`;
}
