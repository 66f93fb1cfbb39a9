import { randomUUID } from "node:crypto";
import type { Duplex } from "node:stream";
import { z } from "zod";
import { HostError } from "../../errors.ts";
import type { Clock } from "../clock.ts";
import type { Engine, Terminal, TerminalOptions } from "./engine.ts";
import { inPath, parsed } from "./parse.ts";
import { endCommand } from "./command-processes.ts";
import type { Transport } from "./transport.ts";
import { isAtLeast } from "./version.ts";
import { defined } from "../../lib/defined.ts";

const Created = z.object({ Id: z.string() });
const Command = z.object({
  Running: z.boolean(),
  ExitCode: z.number().nullish(),
  Pid: z.number().default(0),
  ContainerID: z.string(),
});

/** The engine records the end some milliseconds after the stream ends. */
const ATTEMPTS = 40;
const PAUSE_MS = 50;

/** Runs commands on terminals in running containers. */
export function terminals(transport: Transport, clock: Clock): Pick<Engine, "terminal"> {
  return {
    async terminal(id, options, signal) {
      const mark = `HOLDFAST_TERMINAL=${randomUUID()}`;
      const exec = { id: await create(transport, id, options, mark, signal), mark };
      let stream: Duplex | undefined;
      try {
        stream = await start(transport, exec.id, options, signal);
        const terminal = new CommandTerminal(transport, clock, exec, stream);
        // The engine accepts the size at the start only from API version 1.42.
        await terminal.resize(options.columns, options.rows, signal);
        return terminal;
      } catch (error) {
        // The command may have started, and the Engine API cannot kill it.
        await end(transport, clock, exec).catch(() => undefined);
        stream?.destroy();
        throw error;
      }
    },
  };
}

async function create(
  transport: Transport,
  id: string,
  { command, user, columns, rows }: TerminalOptions,
  mark: string,
  signal: AbortSignal,
): Promise<string> {
  const knowsSize = isAtLeast(await transport.apiVersion(signal), "1.42");
  const body = {
    AttachStdin: true,
    AttachStdout: true,
    AttachStderr: true,
    Tty: true,
    Env: ["TERM=xterm-256color", mark],
    Cmd: command,
    ...defined({ User: user }),
    ...(knowsSize ? { ConsoleSize: [rows, columns] } : {}),
  };
  const call = { what: `cannot run a command in container ${id}`, method: "POST" } as const;
  const answer = await transport.send({ ...call, path: `/containers/${inPath(id)}/exec`, body }, signal);
  return parsed(Created, answer.body, "the engine's answer").Id;
}

function start(transport: Transport, exec: string, options: TerminalOptions, signal: AbortSignal): Promise<Duplex> {
  const what = `cannot start ${options.command[0] ?? "a command"}`;
  const body = { Detach: false, Tty: true };
  return transport.upgrade({ what, method: "POST", path: `/exec/${inPath(exec)}/start`, body }, signal);
}

interface Exec {
  readonly id: string;
  readonly mark: string;
}

async function inspectCommand(
  transport: Transport,
  { id }: Exec,
  signal: AbortSignal,
): Promise<z.infer<typeof Command> | undefined> {
  const path = `/exec/${inPath(id)}/json`;
  const call = { what: "cannot inspect a command", method: "GET", path, accepts: [404] } as const;
  const { status, body } = await transport.send(call, signal);
  return status === 404 ? undefined : parsed(Command, body, "the engine's state of a command");
}

/** Kills the processes of a command; waits for them if the command is just starting. */
async function end(transport: Transport, clock: Clock, exec: Exec): Promise<void> {
  const { signal } = new AbortController();
  let command = await inspectCommand(transport, exec, signal);
  for (let attempt = 1; command?.Running === true && command.Pid <= 1 && attempt < ATTEMPTS; attempt += 1) {
    await clock.sleep(PAUSE_MS);
    command = await inspectCommand(transport, exec, signal);
  }
  if (command === undefined) return;
  await endCommand(clock, { pid: command.Pid, containerId: command.ContainerID, mark: exec.mark });
}

class CommandTerminal implements Terminal {
  readonly stream: Duplex;
  readonly #transport: Transport;
  readonly #clock: Clock;
  readonly #exec: Exec;

  constructor(transport: Transport, clock: Clock, exec: Exec, stream: Duplex) {
    this.#transport = transport;
    this.#clock = clock;
    this.#exec = exec;
    this.stream = stream;
  }

  async resize(columns: number, rows: number, signal: AbortSignal): Promise<void> {
    const query = { w: String(columns), h: String(rows) };
    const call = {
      what: "cannot resize a terminal",
      method: "POST",
      path: `/exec/${this.#exec.id}/resize`,
      query,
    } as const;
    for (let attempt = 1; ; attempt += 1) {
      try {
        await this.#transport.send(call, signal);
        return;
      } catch (error) {
        if (!(error instanceof HostError) || error.code !== "engine-refused") throw error;
        // A command that has ended, or has not started, has no size.
        if (attempt === ATTEMPTS || this.stream.readableEnded || this.stream.destroyed) return;
        if ((await inspectCommand(this.#transport, this.#exec, signal))?.Running !== true && attempt > 2) return;
      }
      await this.#clock.sleep(PAUSE_MS, signal);
    }
  }

  async exitCode(signal: AbortSignal): Promise<number | undefined> {
    for (let attempt = 1; attempt <= ATTEMPTS; attempt += 1) {
      const command = await inspectCommand(this.#transport, this.#exec, signal);
      if (command === undefined) return undefined;
      if (!command.Running) return command.ExitCode ?? undefined;
      await this.#clock.sleep(PAUSE_MS, signal);
    }
    return undefined;
  }

  async kill(): Promise<void> {
    try {
      await end(this.#transport, this.#clock, this.#exec);
    } finally {
      this.stream.destroy();
    }
  }
}
