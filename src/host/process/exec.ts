import { constants, setPriority } from "node:os";
import { execa } from "execa";
import { errnoOf, HostError, toError } from "../../errors.ts";
import type { Clock } from "../clock.ts";
import { deathTie, type CommandLine } from "./death-tie.ts";
import { OutputQueue, type OutputChunk } from "./output-queue.ts";
import { descendantsOf, signalGroup, signalProcess, type ProcessId } from "./process-tree.ts";

export interface SpawnOptions {
  /** Kills the whole process tree when aborted. */
  readonly signal: AbortSignal;
  /** Kills the whole process tree after this many milliseconds. */
  readonly deadlineMs?: number;
  /** Encoding of standard output; UTF-8 by default. `latin1` maps each byte to one character. */
  readonly encoding?: "latin1";
  /** Written to standard input, which is /dev/null by default. */
  readonly input?: string;
}

export interface ExecOptions extends SpawnOptions {
  readonly deadlineMs: number;
  /** Limit of both outputs together; a tool that exceeds it is killed. */
  readonly maxOutputBytes: number;
}

export interface ExecResult {
  /** The exit status; 128 + n if signal n killed the tool, as in a shell. */
  readonly exitCode: number;
  readonly signal: string | undefined;
  readonly stdout: string;
  readonly stderr: string;
  /** Whether the tool was killed because it exceeded `maxOutputBytes`. */
  readonly truncated: boolean;
}

/** A running tool. */
export interface Spawned {
  /** The tool's output as it arrives; the tool blocks while the consumer is behind. Throws the error that prevented the start. */
  readonly output: AsyncIterable<OutputChunk>;
  /** The exit status, once the whole tree has exited; rejects with `exec-failed` if a foreign signal killed the tool. */
  readonly exitCode: Promise<number>;
  /** Kills the whole tree: SIGINT, then SIGKILL after 1.8 s. */
  kill(): void;
}

/**
 * Starts programs without a shell, with a fixed search path and environment, niceness 10 and a process group of their own. A tool
 * dies with this process, even if that is killed.
 */
export interface Exec {
  /**
   * Runs a tool until it exits. A non-zero exit status is a result.
   * @throws {HostError} `tool-missing`, `exec-failed` or `timeout`; when aborted, the signal's reason.
   */
  run(file: string, args: readonly string[], options: ExecOptions): Promise<ExecResult>;
  /** Starts a tool and streams its output. */
  spawn(file: string, args: readonly string[], options: SpawnOptions): Spawned;
}

export const SEARCH_PATH = "/usr/sbin:/usr/bin:/sbin:/bin";
const NICENESS = 10;
/** The channel promises that a cancelled tool has exited within 2 s. */
const KILL_AFTER_MS = 1800;
/** Time that an exited tool's pipe may stay silent, in milliseconds, before it is closed although another process holds it open. */
const LINGER_MS = 500;

interface Exit {
  readonly exitCode: number;
  readonly signal: string | undefined;
  readonly isOurs: boolean;
}

/** Returns an `Exec` of this machine; `searchPath` replaces the fixed one. */
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
          throw new HostError("timeout", `${file} timed out after ${options.deadlineMs} ms`, {
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
        throw new HostError("exec-failed", `${file} was killed by ${signal}`, { details: { tool: file, signal } });
      });
      exitCode.catch(() => undefined); // A caller that awaits it still gets the rejection.
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
  /** Settles once the leader has exited and the rest of its tree is killed. */
  readonly exit: Promise<Exit>;
  /** Whether the deadline killed it. */
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
    // Processes that left the group can be found only while their parents live.
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
    failed.catch(() => undefined); // A caller that awaits it still gets the rejection.
    return failed;
  }

  /** Handles the exit of the leader: kills the rest of its tree, and stops waiting for a pipe that a foreign process holds open. */
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
    // A tool that has already exited needs no lower priority, and the agent's unit forbids setting it.
  }
}

/** The Debian packages of tools that an operator can install. */
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

/** Returns the error of a tool that cannot be started. */
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
