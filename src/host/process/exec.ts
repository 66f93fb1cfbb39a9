import { constants, setPriority } from "node:os";
import { execa } from "execa";
import { errnoOf, HostError, toError } from "../../errors.ts";
import type { Clock } from "../clock.ts";
import { deathTie, type CommandLine } from "./death-tie.ts";
import { OutputQueue, type OutputChunk } from "./output-queue.ts";
import { descendantsOf, signalGroup, signalProcess, type ProcessId } from "./process-tree.ts";

export interface SpawnOptions {
  /** Ends the whole process tree when aborted. */
  readonly signal: AbortSignal;
  /** Ends the whole process tree after so many milliseconds. */
  readonly deadlineMs?: number;
  /** Encoding of standard output, UTF-8 by default; `latin1` has a character for each byte. */
  readonly encoding?: "latin1";
  /** Written to standard input, which is otherwise /dev/null. */
  readonly input?: string;
}

export interface ExecOptions extends SpawnOptions {
  readonly deadlineMs: number;
  /** Of both outputs together; a tool that writes more is ended. */
  readonly maxOutputBytes: number;
}

export interface ExecResult {
  /** The exit status; 128 + n when signal n ended the tool, as a shell says it. */
  readonly exitCode: number;
  readonly signal: string | undefined;
  readonly stdout: string;
  readonly stderr: string;
  /** True when the tool wrote more than was allowed and was ended for it. */
  readonly truncated: boolean;
}

/** A tool at work. */
export interface Spawned {
  /** What it writes, as it comes; the tool waits while the consumer does. Throws what kept it from starting. */
  readonly output: AsyncIterable<OutputChunk>;
  /** The exit status, once nothing of the tree is left; rejects with `exec-failed` when a foreign signal ended it. */
  readonly exitCode: Promise<number>;
  /** Ends the whole tree: SIGINT, and SIGKILL to what is left of it short of 2 s later. */
  kill(): void;
}

/**
 * Starts programs: arguments as a list and never a shell, a fixed search path and environment, niceness 10, an own process group; a
 * tool dies with this process, however that ends.
 */
export interface Exec {
  /**
   * Runs a tool to its end. A non-zero exit is a result.
   * @throws {HostError} `tool-missing`, `exec-failed` or `timeout`; when aborted, the signal's reason.
   */
  run(file: string, args: readonly string[], options: ExecOptions): Promise<ExecResult>;
  /** Starts a tool and hands over its output as it comes. */
  spawn(file: string, args: readonly string[], options: SpawnOptions): Spawned;
}

export const SEARCH_PATH = "/usr/sbin:/usr/bin:/sbin:/bin";
const NICENESS = 10;
/** The channel promises that a cancelled tool is gone within 2 s. */
const KILL_AFTER_MS = 1800;
/** How long an exited tool's pipe may stay silent before whoever still holds it open is no longer waited for. */
const LINGER_MS = 500;

interface Exit {
  readonly exitCode: number;
  readonly signal: string | undefined;
  readonly isOurs: boolean;
}

/** Starts programs on this machine; `searchPath` replaces the fixed one. */
export function hostExec(clock: Clock, searchPath = SEARCH_PATH): Exec {
  const tied = deathTie(searchPath);
  const start = (file: string, args: readonly string[], options: SpawnOptions): Child =>
    new Child(clock, file, tied({ file, args }), options, searchPath);
  return {
    async run(file, args, options) {
      options.signal.throwIfAborted();
      const child = start(file, args, options);
      const { text, isTruncated } = await collect(child, options.maxOutputBytes);
      const { exitCode, signal } = await child.exit;
      if (!isTruncated) {
        options.signal.throwIfAborted();
        if (child.isOverdue) {
          throw new HostError("timeout", `${file} did not end within ${options.deadlineMs} ms`, {
            details: { tool: file },
          });
        }
      }
      return { exitCode, signal, ...text, truncated: isTruncated };
    },
    spawn(file, args, options) {
      const child = start(file, args, options);
      const exitCode = child.exit.then(({ exitCode, signal, isOurs }) => {
        if (signal === undefined || isOurs) return exitCode;
        throw new HostError("exec-failed", `${file} was ended by ${signal}`, { details: { tool: file, signal } });
      });
      exitCode.catch(() => undefined); // Nobody may be waiting; whoever is still gets the rejection.
      return { output: child.output, exitCode, kill: () => child.kill() };
    },
  };
}

async function collect(
  child: Child,
  maxBytes: number,
): Promise<{ text: Record<OutputChunk["kind"], string>; isTruncated: boolean }> {
  const text = { stdout: "", stderr: "" };
  let left = maxBytes;
  for await (const { kind, data } of child.output) {
    const bytes = Buffer.byteLength(data);
    if (bytes <= left) {
      text[kind] += data;
      left -= bytes;
    } else if (left >= 0) {
      text[kind] += Buffer.from(data)
        .subarray(0, left)
        .toString("utf8")
        .replace(/\uFFFD$/u, "");
      left = -1;
      child.kill();
    }
  }
  return { text, isTruncated: left < 0 };
}

class Child {
  readonly output: OutputQueue;
  /** Settles when the leader has ended and what was left of its tree is killed. */
  readonly exit: Promise<Exit>;
  /** Whether the deadline ended it. */
  isOverdue = false;
  readonly #clock: Clock;
  readonly #process: Launched | undefined;
  readonly #timers: (() => void)[] = [];
  #strays: readonly ProcessId[] = [];
  #isKilled = false;
  #hasExited = false;
  #cancelLinger: (() => void) | undefined;

  constructor(clock: Clock, file: string, command: CommandLine, options: SpawnOptions, searchPath: string) {
    this.#clock = clock;
    this.output = new OutputQueue(() => this.kill());
    try {
      options.signal.throwIfAborted();
      this.#process = launch(command, options, searchPath);
    } catch (error) {
      this.exit = this.#fail(options.signal.aborted ? toError(error) : startError(file, error));
      return;
    }
    const { nodeChildProcess: child, stdout, stderr } = this.#process;
    if (stdout !== null) this.output.add("stdout", stdout, options.encoding);
    if (stderr !== null) this.output.add("stderr", stderr);
    this.exit = new Promise<Exit>((resolve, reject) => {
      child.once("exit", (code, signal) => {
        this.#sweep();
        const number = signal === null ? 0 : constants.signals[signal];
        resolve({ exitCode: code ?? 128 + number, signal: signal ?? undefined, isOurs: this.#isKilled });
      });
      this.#process?.then(
        (result) => {
          if (child.pid === undefined) reject(startError(file, result.cause));
        },
        (error: unknown) => reject(startError(file, error)),
      );
    });
    this.exit.catch((error: unknown) => this.output.fail(toError(error)));
    if (child.pid === undefined) return;
    lowerPriority(child.pid);
    const onAbort = (): void => (this.#hasExited ? this.output.destroy() : this.kill());
    options.signal.addEventListener("abort", onAbort, { once: true });
    this.output.whenClosed(() => {
      options.signal.removeEventListener("abort", onAbort);
      this.#cancelLinger?.();
    });
    const { deadlineMs } = options;
    if (deadlineMs !== undefined) {
      this.#timers.push(
        clock.after(deadlineMs, () => {
          this.isOverdue = true;
          this.kill();
        }),
      );
    }
  }

  kill(): void {
    const pid = this.#process?.pid;
    if (this.#isKilled || this.#hasExited || pid === undefined) return;
    this.#isKilled = true;
    // Whoever left the group can be found only while its parents live.
    this.#strays = descendantsOf(pid);
    signalGroup(pid, "SIGINT");
    this.#timers.push(
      this.#clock.after(KILL_AFTER_MS, () => {
        this.#strays = [...this.#strays, ...descendantsOf(pid)];
        signalGroup(pid, "SIGKILL");
      }),
    );
  }

  #fail(reason: Error): Promise<Exit> {
    this.output.fail(reason);
    const failed = Promise.reject<Exit>(reason);
    failed.catch(() => undefined); // Whoever waits for it still gets it.
    return failed;
  }

  /** The leader has ended: ends what it left behind, and stops waiting for a pipe that a stranger keeps open. */
  #sweep(): void {
    this.#hasExited = true;
    const pid = this.#process?.pid;
    if (pid !== undefined) signalGroup(pid, "SIGKILL");
    for (const stray of this.#strays) signalProcess(stray, "SIGKILL");
    for (const cancel of this.#timers.splice(0)) cancel();
    this.#linger(this.output.receivedBytes);
  }

  #linger(receivedBefore: number): void {
    if (this.output.isClosed) return;
    this.#cancelLinger = this.#clock.after(LINGER_MS, () => {
      const received = this.output.receivedBytes;
      const isIdle = !this.output.isPaused && received === receivedBefore;
      if (this.#isKilled || isIdle) this.output.destroy();
      else this.#linger(received);
    });
  }
}

type Launched = ReturnType<typeof launch>;

function launch({ file, args }: CommandLine, { input }: SpawnOptions, searchPath: string) {
  return execa(file, [...args], {
    env: { LC_ALL: "C", TZ: "UTC", PATH: searchPath },
    extendEnv: false,
    cwd: "/",
    detached: true,
    cleanup: false,
    buffer: false,
    encoding: "buffer",
    reject: false,
    ...(input === undefined ? { stdin: "ignore" } : { input }),
  });
}

function lowerPriority(pid: number): void {
  try {
    setPriority(pid, NICENESS);
  } catch {
    // A tool that has ended already needs none, and the agent's unit forbids it.
  }
}

/** The Debian packages of the tools whose absence an operator can mend. */
const PACKAGES: Readonly<Record<string, string>> = {
  arping: "arping",
  conntrack: "conntrack",
  ip: "iproute2",
  mtr: "mtr-tiny",
  nft: "nftables",
  ping: "iputils-ping",
  tcpdump: "tcpdump",
  traceroute: "traceroute",
};

/** The failure of a tool that cannot be started. */
export function startError(file: string, cause: unknown): HostError {
  const details = { tool: file };
  if (errnoOf(cause) === "ENOENT") {
    const source = PACKAGES[file];
    const message = `${file} is not installed`;
    if (source === undefined) return new HostError("tool-missing", message, { cause, details });
    return new HostError("tool-missing", `${message}: on Debian it is in the package ${source}`, {
      cause,
      details: { ...details, package: source },
    });
  }
  return new HostError("exec-failed", `cannot start ${file}: ${toError(cause).message}`, { cause, details });
}
