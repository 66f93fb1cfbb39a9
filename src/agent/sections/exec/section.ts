import { HostError, InternalError, toError } from "../../../errors.ts";
import type { ConfigIssue } from "../../../protocol/sections/common/issue.ts";
import { readExec, type ReadExec } from "../../../protocol/sections/exec/read.ts";
import type { ResourceLimits, VolumeSpec } from "../../../protocol/sections/exec/config.ts";
import { isObject } from "../../../protocol/sections/common/forms.ts";
import { standsAt } from "../../containers/model/standing.ts";
import { WIRE_STATES } from "../../containers/model/compute.ts";
import type { Supervisor } from "../../containers/supervision/supervisor.ts";
import type { Seen } from "../../containers/supervision/seen.ts";
import type { Section } from "../../reconcile/section.ts";
import { describeExecStep } from "./describe.ts";
import type { ExposureStep } from "./exposure-plan.ts";
import type { ExecActual, ExecDesired } from "./actual.ts";
import { noticesExec, planExec, waitingExec, type ExecStep } from "./plan.ts";

export interface ExecOptions {
  readonly supervisor: Pick<
    Supervisor,
    "isUsed" | "observe" | "want" | "update" | "restoreChanges" | "suspend" | "drop" | "settled" | "workers"
  >;
  /** Reads the inputs, other than the engine's state, that decide how a definition is run. */
  readonly surroundings: (
    seen: Seen,
    desired: ExecDesired | undefined,
    signal: AbortSignal,
  ) => Promise<Omit<ExecActual, "seen">>;
  /** Creates the desired volumes and quarantines volumes that are neither desired nor in use. */
  readonly settleVolumes: (
    volumes: readonly VolumeSpec[],
    used: ReadonlySet<string>,
    signal: AbortSignal,
  ) => Promise<void>;
  /** Limits all containers together; an absent limit is lifted. */
  readonly limit?: (limits: ResourceLimits, signal: AbortSignal) => Promise<void>;
  /** Applies a step that changes how containers are reached. */
  readonly expose?: (step: ExposureStep, signal: AbortSignal) => Promise<void>;
  readonly unsupported: () => string | undefined;
}

const DEADLINE_MS = 60_000;
/** Maximum wait for work that ends by itself; longer work continues after the pass. */
const SETTLE_MS = 3000;
/** Steps that wait for the engine's answer. */
const ASKING: ReadonlySet<string> = new Set(["update", "restore settings", "restore network"]);
/** Deadline of the engine for changed limits. */
const UPDATE_MS = 15_000;
/** Longer than it takes to detect an engine that hangs. */
const OBSERVE_MS = 10_000;

/** `exec`: the containers of this node, each by its definition. */
export function execSection(options: ExecOptions): Section<ExecDesired, ExecActual, ExecStep> {
  const { supervisor, surroundings, settleVolumes, unsupported, expose, limit } = options;

  /** Applies all steps; a failed step does not block the others. Throws the first of several failures. */
  async function applyAll(steps: readonly ExecStep[], signal: AbortSignal): Promise<void> {
    const failures: unknown[] = [];
    const attempt = async (work: () => Promise<void> | undefined): Promise<void> => {
      signal.throwIfAborted();
      try {
        await work();
      } catch (error) {
        signal.throwIfAborted();
        failures.push(error);
      }
    };
    for (const step of steps) if ("limits" in step) await attempt(() => limit?.(step.limits, signal));
    for (const step of steps) if ("detail" in step) await attempt(() => expose?.(step, signal));
    // One check after the volume steps covers all volumes.
    const volumes = steps.find((step) => "volumes" in step);
    if (volumes !== undefined) await attempt(() => settleVolumes(volumes.volumes, volumes.used, signal));
    const containers = steps.flatMap((step) =>
      "volumes" in step || "detail" in step || "limits" in step ? [] : [step],
    );
    // Steps that stop containers do not wait for the engine's answers to other steps.
    for (const step of containers) if (!ASKING.has(step.kind)) await attempt(() => hand(step, signal));
    const within = AbortSignal.any([signal, AbortSignal.timeout(UPDATE_MS)]);
    await Promise.all(containers.flatMap((step) => (ASKING.has(step.kind) ? [attempt(() => hand(step, within))] : [])));
    await supervisor.settled(
      steps.map(({ subject }) => subject),
      SETTLE_MS,
      signal,
    );
    if (failures.length > 0) throw toError(failures[0]);
  }

  async function hand(
    step: Exclude<ExecStep, { volumes: unknown } | { detail: string } | { limits: unknown }>,
    signal: AbortSignal,
  ): Promise<void> {
    switch (step.kind) {
      case "remove":
        return supervisor.drop(step.subject);
      case "suspend":
        return supervisor.suspend(step.subject);
      case "update":
        return supervisor.update(step.wanted, signal);
      case "restore settings":
        return supervisor.restoreChanges(step.subject, "settings", signal);
      case "restore network":
        return supervisor.restoreChanges(step.subject, "network", signal);
      default:
        return supervisor.want(step.wanted);
    }
  }

  return {
    name: "exec",
    needsDataPlane: true,
    deadlineMs: DEADLINE_MS,
    unsupported,
    parse(raw) {
      const { config, rejected, notices, isUnusable = false } = byName(raw, readExec(raw));
      const read = new Set(config.containers.map(({ id }) => id));
      const unread = identifiedOf(raw).filter(({ id }) => !read.has(id));
      const disabled = new Set(unread.flatMap(({ id, isDisabled }) => (isDisabled ? [id] : [])));
      const unreadable = new Set(unread.flatMap(({ id }) => (disabled.has(id) ? [] : [id])));
      return { desired: { config, unreadable, disabled }, rejected, notices, isUnusable };
    },
    async observe(signal, desired) {
      const isWanted = desired !== undefined && isAnyWanted(desired);
      const seen = isWanted || supervisor.isUsed ? await observeSoon(signal) : NOTHING;
      return { seen, ...(await surroundings(seen, desired, signal)) };
    },
    plan: planExec,
    describe: describeExecStep,
    undo: () => undefined,
    apply: (step, signal) => applyAll([step], signal),
    applyAll,
    waits: waitingExec,
    notices: noticesExec,
    report: ({ seen }) => reportOf(seen),
  };

  async function observeSoon(signal: AbortSignal): Promise<Seen> {
    try {
      return await supervisor.observe(AbortSignal.any([signal, AbortSignal.timeout(OBSERVE_MS)]));
    } catch (error) {
      signal.throwIfAborted();
      throw error instanceof HostError
        ? error
        : new InternalError("internal", "the container supervisor does not answer");
    }
  }
}

function isAnyWanted({ config: { containers, volumes, limits } }: ExecDesired): boolean {
  return containers.length + volumes.length > 0 || Object.values(limits).some((limit) => limit !== undefined);
}

const NOTHING: Seen = { engine: { state: "unused" }, info: undefined, now: 0, works: new Map(), foreign: [] };

/** Counts containers by state. Names are left to the local API. */
function reportOf({ engine, works, foreign, now }: Seen): Readonly<Record<string, unknown>> {
  const counts = { RUNNING: 0, INITIALIZING: 0, STOPPED: 0 };
  let unhealthy = 0;
  for (const { standing, container } of works.values()) {
    counts[WIRE_STATES[standsAt(standing, now).state]] += 1;
    if (container?.health === "unhealthy") unhealthy += 1;
  }
  return {
    containers: works.size,
    running: counts.RUNNING,
    initializing: counts.INITIALIZING,
    stopped: counts.STOPPED,
    unhealthy,
    foreign: foreign.length,
    engine: engine.state,
  };
}

const ITEM = /^exec\.(commands|volumes)\.(\d{1,5})(?=[.:]|$)/;
/** Characters of container and volume names. */
const NAME = /^[A-Za-z0-9][\w.-]{0,62}$/;

/** Replaces positions of containers and volumes in paths by their names, so that operators can read them. Pure. */
function byName(raw: unknown, read: ReadExec): ReadExec {
  const rename = (text: string): string =>
    text.replace(ITEM, (path, list: string, index: string) => {
      const items = isObject(raw) ? raw[list] : undefined;
      const item: unknown = Array.isArray(items) ? items[Number(index)] : undefined;
      const name = isObject(item) ? item["name"] : undefined;
      return typeof name === "string" && NAME.test(name) ? `exec.${list}.${name}` : path;
    });
  const renamed = <T extends { readonly path: string }>(one: T): T => ({ ...one, path: rename(one.path) });
  const issue = (one: ConfigIssue): ConfigIssue => ({ ...renamed(one), message: rename(one.message) });
  return {
    ...read,
    config: {
      ...read.config,
      containers: read.config.containers.map(renamed),
      volumes: read.config.volumes.map(renamed),
    },
    rejected: read.rejected.map(issue),
    notices: read.notices.map(issue),
  };
}

/** Returns the definitions with an id, valid or not. */
function identifiedOf(raw: unknown): readonly { readonly id: string; readonly isDisabled: boolean }[] {
  const list = isObject(raw) ? raw["commands"] : undefined;
  if (!Array.isArray(list)) return [];
  return list.flatMap((item: unknown) =>
    isObject(item) && typeof item["id"] === "string" ? [{ id: item["id"], isDisabled: item["enabled"] === false }] : [],
  );
}
