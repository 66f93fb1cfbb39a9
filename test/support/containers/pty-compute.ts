import { spawn, spawnSync, type ChildProcess } from "node:child_process";
import { readFileSync, readlinkSync } from "node:fs";
import { Duplex, type Readable, type Writable } from "node:stream";
import type { Compute, TerminalRequest } from "../../../src/agent/containers/model/compute.ts";
import { InputError } from "../../../src/errors.ts";
import type { OutputFrame, Terminal } from "../../../src/host/engine/engine.ts";
import { waitFor } from "../wait-for.ts";

/** Containers that are programs of this machine: `shell` on a pseudo terminal, others by the test. */
export class PtyCompute implements Compute {
  readonly engine = { state: "well", since: 0, reason: undefined } as const;
  readonly terminals: PtyTerminal[] = [];
  readonly requests: TerminalRequest[] = [];
  /** Other terminals, by the container's name. */
  readonly made = new Map<string, () => Terminal>();
  frames: OutputFrame[] = [];
  readonly logged: object[] = [];

  async terminal(name: string, request: TerminalRequest): Promise<Terminal> {
    this.requests.push(request);
    const made = this.made.get(name);
    if (made !== undefined) return made();
    if (name !== "shell") throw new InputError("not-found", `there is no container ${name}`);
    const terminal = new PtyTerminal(request.command ?? ["sh"]);
    this.terminals.push(terminal);
    await terminal.resize(request.columns, request.rows);
    return terminal;
  }

  async *logs(name: string, options: { follow: boolean; lines: number }, signal: AbortSignal) {
    this.logged.push({ name, ...options });
    if (name !== "shell") throw new InputError("not-found", `there is no container ${name}`);
    yield* this.frames;
    if (options.follow)
      await new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason as Error)));
  }

  output = () => Promise.reject(new Error("nothing is kept of what is written here"));
  containers = () => [];
  volumes = () => [];
  onChange = () => undefined;
  start = () => Promise.reject(new Error("nothing is started here"));
  stop = () => Promise.reject(new Error("nothing is stopped here"));
  restart = () => Promise.reject(new Error("nothing is restarted here"));
  images = () => Promise.resolve([]);
  removeImage = () => Promise.reject(new Error("there are no images here"));
}

/** Two pipes as one stream. */
export function joined(output: Readable, input: Writable): Duplex {
  const stream = new Duplex({
    read: () => void output.resume(),
    write: (chunk: Buffer, _encoding, done) => void input.write(chunk, () => done()),
    destroy: (error, done) => {
      input.destroy();
      output.destroy();
      done(error);
    },
  });
  output.on("data", (chunk: Buffer) => {
    if (!stream.push(chunk)) output.pause();
  });
  output.once("end", () => stream.push(null));
  return stream;
}

/** A program on a pseudo terminal, by script(1). */
export class PtyTerminal implements Terminal {
  readonly stream: Duplex;
  readonly #script: ChildProcess;
  readonly #ended: Promise<number | undefined>;
  kills = 0;

  constructor(command: readonly string[]) {
    const words = command.map((word) => `'${word.replaceAll("'", "'\\''")}'`).join(" ");
    const script = spawn("script", ["-qfe", "-c", `exec ${words}`, "/dev/null"], {
      stdio: ["pipe", "pipe", "ignore"],
      env: { PATH: process.env["PATH"], TERM: "dumb", PS1: "$ ", SHELL: "/bin/sh" },
    });
    this.#script = script;
    this.#ended = new Promise((resolve) => script.once("exit", (code) => resolve(code ?? undefined)));
    script.stdin.on("error", () => undefined);
    this.stream = joined(script.stdout, script.stdin);
  }

  /** Process id of the program itself; undefined after its exit. */
  get pid(): number | undefined {
    try {
      const children = readFileSync(`/proc/${this.#script.pid}/task/${this.#script.pid}/children`, "utf8");
      return children.trim() === "" ? undefined : Number(children.trim().split(" ")[0]);
    } catch {
      return undefined;
    }
  }

  async resize(columns: number, rows: number): Promise<void> {
    const tty = await waitFor("the terminal of the program", () => {
      if (this.#script.exitCode !== null || this.#script.signalCode !== null) return "gone";
      const path = readlinkSync(`/proc/${this.pid}/fd/0`);
      return path.startsWith("/dev/pts/") && path;
    });
    // It may exit at any time.
    spawnSync("stty", ["-F", tty, "cols", String(columns), "rows", String(rows)], { stdio: "ignore" });
  }

  exitCode(): Promise<number | undefined> {
    return this.#ended;
  }

  async kill(): Promise<void> {
    this.kills += 1;
    const { pid } = this;
    if (pid !== undefined) process.kill(-pid, "SIGKILL");
    this.#script.kill("SIGKILL");
    await this.#ended;
  }
}
