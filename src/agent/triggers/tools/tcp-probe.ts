import { lookup } from "node:dns/promises";
import { connect, isIP } from "node:net";
import { errnoOf, toError } from "../../../errors.ts";

export interface ProbeTarget {
  readonly host: string;
  readonly port: number;
  readonly source?: string | undefined;
}

export interface ProbeResult {
  /** Text in the format of OpenBSD's nc(1). */
  readonly message: string;
  readonly exitCode: 0 | 1;
}

const REASONS: Readonly<Record<string, string>> = {
  ECONNREFUSED: "Connection refused",
  ECONNRESET: "Connection reset by peer",
  EHOSTUNREACH: "No route to host",
  ENETUNREACH: "Network is unreachable",
  ETIMEDOUT: "Connection timed out",
  EACCES: "Permission denied",
  EPERM: "Operation not permitted",
  EADDRNOTAVAIL: "Cannot assign requested address",
};

/** Tries the addresses of a host in turn until one accepts; reports in nc's format. Rejects only on abort. */
export async function probeTcp(target: ProbeTarget, timeoutMs: number, signal: AbortSignal): Promise<ProbeResult> {
  const { host, port } = target;
  let addresses: readonly string[];
  try {
    addresses = await resolve(target, signal);
  } catch {
    signal.throwIfAborted();
    return { message: `nc: getaddrinfo for host "${host}" port ${port}: Name or service not known\n`, exitCode: 1 };
  }
  let message = "";
  for (const address of addresses) {
    const shown = address === host ? host : `${host} (${address})`;
    const failure = await attempt(address, target, timeoutMs, signal);
    if (failure === undefined) {
      return { message: `${message}Connection to ${shown} ${port} port [tcp/*] succeeded!\n`, exitCode: 0 };
    }
    message +=
      failure.kind === "bind"
        ? `nc: bind failed: ${failure.reason}\n`
        : `nc: connect to ${shown} port ${port} (tcp) ${failure.reason}\n`;
  }
  return { message, exitCode: 1 };
}

async function resolve({ host, source }: ProbeTarget, signal: AbortSignal): Promise<readonly string[]> {
  if (isIP(host) !== 0) return [host];
  const family = isIP(source ?? "");
  const found = await untilAborted(lookup(host, { all: true, family, order: "verbatim" }), signal);
  return [...new Set(found.map(({ address }) => address))];
}

/** getaddrinfo(3) cannot be cancelled; a late answer is ignored. */
function untilAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const onAbort = (): void => reject(toError(signal.reason));
    if (signal.aborted) onAbort();
    signal.addEventListener("abort", onAbort, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener("abort", onAbort));
  });
}

interface Failure {
  readonly kind: "bind" | "connect";
  readonly reason: string;
}

function attempt(
  address: string,
  { port, source }: ProbeTarget,
  timeoutMs: number,
  signal: AbortSignal,
): Promise<Failure | undefined> {
  return new Promise((resolve, reject) => {
    const local = source === undefined ? {} : { localAddress: source };
    const socket = connect({ host: address, port, ...local, signal, timeout: timeoutMs });
    const end = (failure: Failure | undefined): void => {
      socket.destroy();
      resolve(failure);
    };
    socket.once("connect", () => end(undefined));
    socket.once("timeout", () => end({ kind: "connect", reason: "timed out: Operation now in progress" }));
    socket.once("error", (error) => {
      if (signal.aborted) {
        reject(toError(signal.reason));
        return;
      }
      const errno = errnoOf(error) ?? "";
      const reason = REASONS[errno] ?? error.message;
      const isBind = "syscall" in error && error.syscall === "bind";
      end(
        isBind || errno === "EADDRNOTAVAIL"
          ? { kind: "bind", reason }
          : { kind: "connect", reason: `failed: ${reason}` },
      );
    });
  });
}
