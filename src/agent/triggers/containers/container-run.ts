import { InputError } from "../../../errors.ts";
import type { OutputFrame } from "../../../host/engine/engine.ts";
import { ContainerCommand } from "../../../protocol/triggers/bodies.ts";
import type { Compute } from "../../containers/model/compute.ts";
import { decodeOutput } from "../../containers/output/decode-output.ts";
import { pullLines, SEPARATOR } from "./pull-lines.ts";
import type { OneShotTrigger, StreamTrigger, Trigger, TriggerCall, TriggerContext } from "../execution/trigger.ts";

export interface ContainerRunOptions {
  readonly compute: () => Pick<Compute, "containers" | "start" | "stop" | "restart"> | undefined;
  /** Leaves a line in the audit trail. */
  readonly audit: (what: string) => void;
}

/** A pull of a large image and a long stop fit in; the caller's own deadline is the shorter one. */
const LONGEST_MS = 3_600_000;
const DONE = { start: "started", stop: "stopped", restart: "restarted" } as const;

/**
 * Finds the event that is called as a container is: it starts, stops or restarts it. A watched start of one that runs on demand gives the
 * progress of the pull and then the output, and ends the run with the stream.
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
    // An INACTIVE node runs nothing; stopping is never wrong.
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

/** Lines of the pull, in order and without holding it up, and one separator after them. */
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

/** Hands on frames as text, one after the other. */
class OutputText {
  readonly #emit: TriggerContext["emit"];
  readonly #frames = new TransformStream<OutputFrame, OutputFrame>();
  readonly #writer = this.#frames.writable.getWriter();
  readonly #done: Promise<void>;

  constructor(emit: TriggerContext["emit"]) {
    this.#emit = emit;
    this.#done = this.#pump();
    // Whoever ends it hears of it.
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
