import { InputError } from "../../../errors.ts";
import type { OutputFrame } from "../../../host/engine/engine.ts";
import { ContainerCommand } from "../../../protocol/triggers/bodies.ts";
import type { Compute } from "../../containers/model/compute.ts";
import { decodeOutput } from "../../containers/output/decode-output.ts";
import { pullLines, SEPARATOR } from "./pull-lines.ts";
import type { OneShotTrigger, StreamTrigger, Trigger, TriggerCall, TriggerContext } from "../execution/trigger.ts";

export interface ContainerRunOptions {
  readonly compute: () => Pick<Compute, "containers" | "start" | "stop" | "restart"> | undefined;
  /** Adds a line to the audit log. */
  readonly audit: (what: string) => void;
}

/** Long enough for a pull of a large image and a slow stop; the caller's own deadline is shorter. */
const LONGEST_MS = 3_600_000;
const DONE = { start: "started", stop: "stopped", restart: "restarted" } as const;

/**
 * Returns the trigger whose event is a container's name: it starts, stops or restarts the container. A watched start of an on-demand
 * container streams the progress of the pull, then the output, and stops the run when the stream ends.
 */
export function containerRun(
  options: ContainerRunOptions,
): (call: Pick<TriggerCall, "event" | "body" | "isWatched">) => Trigger<ContainerCommand> | undefined {
  return ({ event, body, isWatched }) => {
    const found = options
      .compute()
      ?.containers()
      .find(({ name }) => name === event);
    if (found === undefined) return undefined;
    const action = ContainerCommand.safeParse(body).data?.cmd_action;
    const isAttached = isWatched && action === "start" && found.execType === "onDemand";
    return isAttached ? attached(event, options) : command(event, action, options);
  };
}

const shared = { request: ContainerCommand, deadlineMs: LONGEST_MS, readOnly: false, agents: false } as const;

function command(
  event: string,
  action: ContainerCommand["cmd_action"] | undefined,
  { compute, audit }: ContainerRunOptions,
): OneShotTrigger<ContainerCommand> {
  return {
    ...shared,
    event,
    kind: "one-shot",
    // An INACTIVE node runs no container, but may stop one.
    needsDataPlane: action !== "stop",
    isRemedy: () => action === "stop",
    async handle({ cmd_action: what }, { signal, user }) {
      const there = computeOf(compute);
      if (what === "start") await there.start(event, {}, signal);
      else if (what === "stop") await there.stop(event, signal);
      else await there.restart(event, signal);
      audit(`${user} ${DONE[what]} container ${event}`);
      return { message: `Successful ${what}` };
    },
  };
}

function attached(event: string, { compute, audit }: ContainerRunOptions): StreamTrigger<ContainerCommand> {
  return {
    ...shared,
    event,
    kind: "stream",
    needsDataPlane: true,
    watchedMs: LONGEST_MS,
    async handle(_, { emit, signal, user }) {
      const shown = progressOf(emit);
      const output = new OutputText(emit);
      const ending = computeOf(compute).start(
        event,
        {
          onPull: (progress) => shown.pull(progress),
          async onOutput(frame) {
            await shown.separate();
            await output.write(frame);
          },
        },
        signal,
      );
      audit(`${user} started container ${event}`);
      const { exitCode } = await ending;
      await shown.separate();
      await output.end();
      return { exitCode: exitCode ?? 0 };
    },
  };
}

/** Writes the lines of a pull in order without delaying it, then one separator. */
function progressOf(emit: TriggerContext["emit"]) {
  const lineOf = pullLines();
  let tail = Promise.resolve();
  let hasLines = false;
  return {
    pull(progress: Parameters<typeof lineOf>[0]): void {
      const data = lineOf(progress);
      if (data === undefined) return;
      hasLines = true;
      tail = tail.then(() => emit({ kind: "stdout", data }));
    },
    async separate(): Promise<void> {
      await tail;
      if (!hasLines) return;
      hasLines = false;
      await emit({ kind: "stdout", data: SEPARATOR });
    },
  };
}

/** Forwards frames as text, one after the other. */
class OutputText {
  readonly #emit: TriggerContext["emit"];
  readonly #frames = new TransformStream<OutputFrame, OutputFrame>();
  readonly #writer = this.#frames.writable.getWriter();
  readonly #done: Promise<void>;

  constructor(emit: TriggerContext["emit"]) {
    this.#emit = emit;
    this.#done = this.#pump();
    // The caller of `end` receives the error.
    this.#done.catch(() => undefined);
  }

  async write(frame: OutputFrame): Promise<void> {
    await this.#writer.write(frame);
  }

  async end(): Promise<void> {
    await this.#writer.close();
    await this.#done;
  }

  async #pump(): Promise<void> {
    for await (const { stream, data } of decodeOutput(this.#frames.readable)) await this.#emit({ kind: stream, data });
  }
}

function computeOf<T>(compute: () => T | undefined): T {
  const there = compute();
  if (there === undefined) throw new InputError("not-configured", "no container is configured on this node");
  return there;
}
