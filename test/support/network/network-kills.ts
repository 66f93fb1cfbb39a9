import { cpSync, existsSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { cut, heal } from "../../../scripts/labs/faults.ts";
import { placesOf } from "../../../scripts/labs/programs.ts";
import { differences, type MachineState } from "./machine-state.ts";
import type { EdgeMachine } from "./edge-machine.ts";
import { describePoint, type Point } from "../kills/strace.ts";
import { killPointsOf, traceRunning } from "../kills/strace-running.ts";
import { tempDir } from "../temp-dir.ts";
import { waitFor } from "../wait-for.ts";
import { WrappedTools, type ChildPoint } from "./wrapped-tools.ts";

/** The point of a kill: a system call of the agent, or a moment of a tool that it runs. */
export type NetworkPoint =
  | { readonly in: "agent"; readonly point: Point }
  | { readonly in: "child"; readonly point: ChildPoint };

/** Longer than any change. */
const TOO_LATE_MS = 8000;
/** Without a lease. */
const SETTLED_WITHIN_MS = 120_000;

export interface NetworkKillsOptions {
  /** Limit for the network to be the old or the new one after a start. */
  readonly settledWithinMs?: number;
}

/** Results of the kills: those that left neither network, and a summary of all. */
export interface Killed {
  readonly failures: readonly string[];
  readonly text: string;
}

/** Describes a point. */
function describeNetworkPoint(at: NetworkPoint): string {
  if (at.in === "agent") return describePoint(at.point);
  const { tool, run, moment } = at.point;
  return `${typeof moment === "string" ? moment : `${moment.call} ${moment.nth}`} of ${tool} ${run}`;
}

/**
 * Repeatedly changes the network of a machine from one section to another, and kills the process that does it. Each time the machine has
 * booted and its agent is online with the old section; after the kill the control plane is unreachable.
 */
export class NetworkKills {
  readonly #machine: EdgeMachine;
  readonly #sections: { readonly before: Section; readonly after: Section };
  readonly #settledWithinMs: number;
  readonly #tools: WrappedTools;
  readonly #template = join(tempDir(), "state");
  #states: { readonly before: MachineState; readonly after: MachineState } | undefined;
  #round = 0;
  /** Version of the document in the template. */
  #version = 0;
  /** Number of kills that came after the change, since a run made fewer calls than the recorded one. */
  #late = 0;

  constructor(
    machine: EdgeMachine,
    before: Section,
    after: Section,
    { settledWithinMs = SETTLED_WITHIN_MS }: NetworkKillsOptions = {},
  ) {
    this.#machine = machine;
    this.#sections = { before, after };
    this.#settledWithinMs = settledWithinMs;
    this.#tools = new WrappedTools(join(tempDir(), "tools"));
  }

  /** Makes the change without a kill, and returns all of its points. */
  async record(): Promise<readonly NetworkPoint[]> {
    const machine = this.#machine;
    const { documents } = await machine.apply(this.#sections.before);
    this.#version = documents.node?.version ?? 0;
    await machine.lab.endAgent(machine.name);
    cpSync(this.#stateDir, this.#template, { recursive: true });
    await this.#prepare();
    const before = machine.state();
    this.#tools.record();
    const tracing = await traceRunning(this.#agent(), ["main", "pool"]);
    await machine.apply(this.#section("after"));
    const calls = await tracing.end();
    const runs = this.#tools.recorded();
    this.#tools.leave();
    this.#states = { before, after: machine.state() };
    const { state, run } = placesOf(machine.lab.dir, machine.name);
    const inAgent = killPointsOf(calls, [state, run]).map((point) => ({ in: "agent", point }) as const);
    const inChildren = runs.flatMap(({ tool, run, calls }) => {
      const seen = new Map<string, number>();
      const sends = calls.map((call) => {
        const nth = (seen.get(call) ?? 0) + 1;
        seen.set(call, nth);
        return { call, nth };
      });
      const moments = ["start", ...sends, "end"] as const;
      return moments.map((moment) => ({ in: "child", point: { tool, run, moment } }) as const);
    });
    return [...inAgent, ...inChildren];
  }

  /** Returns the differences between the old and the new section on the machine. */
  change(): readonly string[] {
    const { before, after } = this.#recorded();
    return differences(before, after);
  }

  /**
   * Kills the change at each of these points; the guard and the agent start again in turn.
   * @param livingAt names of programs that survive the agent, for each kill; by default all are killed with it.
   */
  async killAtEach(
    points: readonly NetworkPoint[],
    livingAt: (at: number) => readonly string[] = () => [],
  ): Promise<Killed> {
    const failures: string[] = [];
    const outcomes = { before: 0, after: 0 };
    for (const [at, point] of points.entries()) {
      try {
        outcomes[await this.#kill(point, at % 2 === 0 ? "guard" : "agent", livingAt(at))] += 1;
      } catch (error) {
        const { cause } = error as Error;
        failures.push(`${describeNetworkPoint(point)}: ${String(error)} ${String(cause)}`);
      }
    }
    const passed = points.length - failures.length;
    const { before, after } = outcomes;
    const text = `${passed} of ${points.length} passed; old ${before}, new ${after}, late ${this.#late}`;
    return { failures, text };
  }

  /**
   * Kills the change at a point, and starts the guard alone, or the agent. Returns the resulting network.
   * @throws {Error} when it is neither.
   */
  async #kill(at: NetworkPoint, by: "guard" | "agent", living: readonly string[]): Promise<"before" | "after"> {
    const machine = this.#machine;
    const { before, after } = this.#recorded();
    await this.#prepare();
    const agent = this.#agent();
    const tracing = at.in === "child" ? undefined : await this.#trace(at.point, agent);
    if (at.in === "child") this.#tools.killAt(at.point, agent);
    await machine.put(this.#section("after"));
    const isDead = (): boolean => !existsSync(`/proc/${agent}/task/${agent}/children`);
    await waitFor("the agent is killed", isDead, TOO_LATE_MS).catch(() => {
      this.#late += 1;
    });
    await tracing?.end();
    this.#tools.leave();
    cut(machine.lab, machine.name);
    try {
      await machine.endEverything(living);
      if (by === "guard") {
        const { code, stdout, stderr } = await machine.restore();
        if (code !== 0) throw new Error(`the guard ended with ${code}: ${stdout}${stderr}`);
      } else {
        await machine.start();
      }
      return await waitFor(
        "the network is the old or the new one",
        () => {
          const state = machine.state();
          const [toBefore, toAfter] = [differences(before, state), differences(after, state)];
          if (toBefore.length === 0) return "before" as const;
          if (toAfter.length === 0) return "after" as const;
          throw new Error(`against the old: ${toBefore.join("\n")}\nagainst the new: ${toAfter.join("\n")}`);
        },
        this.#settledWithinMs,
      );
    } catch (error) {
      throw new Error(`killed at ${describeNetworkPoint(at)}, started by ${by}: ${machine.log().slice(-2000)}`, {
        cause: error,
      });
    } finally {
      await heal(machine.lab, machine.name);
    }
  }

  /** Boots a machine with the old section applied and the control plane reachable. */
  async #prepare(): Promise<void> {
    const machine = this.#machine;
    await machine.cutPower();
    // The control plane would count a repeated boot, or a reset session counter, as another machine.
    machine.boot({ isSameStart: true });
    for (const name of readdirSync(this.#stateDir)) {
      if (name !== "identity") rmSync(join(this.#stateDir, name), { recursive: true, force: true });
    }
    cpSync(this.#template, this.#stateDir, { recursive: true, filter: (path) => !path.includes("/state/identity/") });
    await machine.put(this.#section("before"));
    await machine.start([...this.#tools.within, "env", "UV_THREADPOOL_SIZE=1"]);
    await machine.untilSettled(this.#version + 1);
  }

  async #trace(point: Point, agent: number) {
    return traceRunning(agent, [point.thread], `${point.name}:signal=SIGKILL:when=${point.nth}`);
  }

  /** A section with a marker of its own. */
  #section(which: "before" | "after"): Section {
    this.#round += 1;
    const [first, ...others] = this.#sections[which].interfaces;
    return { ...this.#sections[which], interfaces: [{ ...first, description: `round ${this.#round}` }, ...others] };
  }

  #recorded() {
    if (this.#states === undefined) throw new Error("nothing was recorded");
    return this.#states;
  }

  #agent(): number {
    const pid = this.#machine.lab.pidOf(this.#machine.name, "agent");
    if (pid === undefined) throw new Error("no agent runs");
    return pid;
  }

  get #stateDir(): string {
    return placesOf(this.#machine.lab.dir, this.#machine.name).state;
  }
}

export interface Section extends Readonly<Record<string, unknown>> {
  readonly interfaces: readonly Readonly<Record<string, unknown>>[];
}
