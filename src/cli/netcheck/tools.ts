import { errnoOf, toError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import type { Exec } from "../../host/process/exec.ts";
import { openTcp, type TcpTarget } from "../../host/net/net-probe.ts";
import type { Resolve } from "../../host/net/system-resolve.ts";
import { failed, passed, type Finding } from "./result.ts";

/** Context of the checks. */
export interface CheckTools {
  readonly clock: Clock;
  readonly exec: Exec;
  readonly resolve: Resolve;
  /** Time limit of each attempt, in milliseconds. */
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
}

/** A finding, and the value for the next checks. */
export interface Found<T> {
  readonly finding: Finding;
  readonly value: T;
}

/** Maximum number of tried addresses of a name. */
const MAX_ADDRESSES = 8;

/** Runs one try within its time. @throws what the try threw, `TimeoutError` when it took too long, or Ctrl-C. */
export async function tried<T>(tools: CheckTools, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const limit = AbortSignal.any([tools.signal, AbortSignal.timeout(tools.timeoutMs)]);
  const late = new Promise<never>((_, reject) => {
    limit.addEventListener("abort", () => reject(toError(limit.reason)), { once: true });
  });
  // A tool that cannot be interrupted is not awaited.
  return Promise.race([work(limit), late]);
}

/** Explains a failed attempt. @throws the abort reason of Ctrl-C. */
export function wordsOf(error: unknown, { signal, timeoutMs }: CheckTools): string {
  signal.throwIfAborted();
  const { name, message } = toError(error);
  if (name === "TimeoutError") return `no answer within ${timeoutMs / 1000} s`;
  return WORDS[errnoOf(error) ?? ""] ?? message;
}

/** Returns the reason code of a failed attempt. */
function codeOfTry(error: unknown): string {
  if (toError(error).name === "TimeoutError") return "no-answer";
  return CODES[errnoOf(error) ?? ""] ?? "failed";
}

const CODES: Readonly<Record<string, string>> = {
  ECONNREFUSED: "refused",
  ECONNRESET: "cut",
  EHOSTUNREACH: "no-route",
  ENETUNREACH: "no-route",
  ETIMEDOUT: "no-answer",
  ENOTFOUND: "no-such-name",
  EAI_AGAIN: "no-name-server",
};

const WORDS: Readonly<Record<string, string>> = {
  ECONNREFUSED: "refused the connection",
  ECONNRESET: "cut the connection",
  EHOSTUNREACH: "no route to the host",
  ENETUNREACH: "the network is unreachable",
  ETIMEDOUT: "no answer",
  EADDRNOTAVAIL: "the address to leave from is not there",
  ENOTFOUND: "no such name",
  EAI_AGAIN: "no name server answers",
};

/** Resolves a name. */
export async function checkName(host: string, tools: CheckTools): Promise<Found<readonly string[]>> {
  try {
    const addresses = (await tried(tools, () => tools.resolve(host))).slice(0, MAX_ADDRESSES);
    const same = addresses.length === 1 && addresses[0] === host;
    const message = same ? `${host} is an address` : `${host} is ${addresses.join(", ")}`;
    return { finding: passed("dns", message), value: addresses };
  } catch (error) {
    const message = `${host}: ${wordsOf(error, tools)}`;
    return {
      finding: failed("dns", message, "check the name and the name servers in /etc/resolv.conf", codeOfTry(error)),
      value: [],
    };
  }
}

/** Connects to each address by TCP; passes if one accepts. */
export async function checkTcp(
  targets: readonly TcpTarget[],
  fix: string,
  tools: CheckTools,
): Promise<Found<readonly string[]>> {
  const outcomes = await Promise.all(
    targets.map(async (target) => {
      const startedAt = tools.clock.elapsed();
      const where = `${target.address.includes(":") ? `[${target.address}]` : target.address}:${target.port}`;
      try {
        (await tried(tools, (signal) => openTcp(target, signal))).destroy();
        const ms = Math.max(1, Math.round(tools.clock.elapsed() - startedAt));
        return { address: target.address, code: "ok", text: `${where} answers in ${ms} ms` };
      } catch (error) {
        return { address: undefined, code: codeOfTry(error), text: `${where} ${wordsOf(error, tools)}` };
      }
    }),
  );
  const value = outcomes.flatMap(({ address }) => (address === undefined ? [] : [address]));
  const message = outcomes.map(({ text }) => text).join("; ");
  return { finding: value.length > 0 ? passed("tcp", message) : failed("tcp", message, fix, outcomes[0]?.code), value };
}
