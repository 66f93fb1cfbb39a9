import { isDeepStrictEqual } from "node:util";
import type { ContainerSpec, ExecConfig, VolumeSpec } from "../../../protocol/sections/exec-config.ts";
import { HOLD_MS, isWanting, standsAt, type Goal } from "../../compute/standing.ts";
import type { Seen, WorkView } from "../../compute/seen.ts";
import type { Blueprint, Wanted } from "../../compute/wanted.ts";
import type { Issue, Step } from "../../reconcile/section.ts";
import { allotAddresses, isHostOf, type AddressPlan } from "./addresses.ts";
import { capsNotices, planCaps, type CapsSeen, type CapsStep } from "./caps.ts";
import { compileContainer, restartPolicyOf, type Compiled, type Placement } from "./compile.ts";
import { compileExposure, placeObstacle, type ExposureSeen, type ExposureTarget, type Placed } from "./exposure.ts";
import { NOTHING_EXPOSED, planExposure, type ExposureStep } from "./exposure-plan.ts";

export interface ExecDesired {
  readonly config: ExecConfig;
  /** Definitions that cannot be read; what there is of them stays as it is. */
  readonly unreadable: ReadonlySet<string>;
  /** Definitions that cannot be read either, and say that nothing of them shall run. */
  readonly disabled: ReadonlySet<string>;
}

/** Volumes as far as they are known. */
export interface VolumesSeen {
  /** On record and in use, by name. */
  readonly kept: ReadonlySet<string>;
  /** Whether they were looked after since the agent began, and nothing is due. */
  readonly isSettled: boolean;
  /** What keeps one from being used. */
  readonly troubles: readonly { readonly name: string; readonly reason: string }[];
}

/** What is there, and everything else that decides what a definition becomes. */
export interface ExecActual {
  readonly seen: Seen;
  readonly isActive: boolean;
  /** Of the documents in force. */
  readonly version: string;
  /** Undefined while the engine has not said what the machine has. */
  readonly placement: Omit<Placement, "nonce" | "address"> | undefined;
  readonly addresses: AddressPlan;
  readonly volumes: VolumesSeen;
  /** Why a definition must not be started as the machine is now. */
  readonly check: (spec: ContainerSpec) => Promise<string | undefined>;
  /** By definition, why the machine as it is forbids it: it neither starts nor goes on. */
  readonly forbidden?: ReadonlyMap<string, string>;
  /** The limits of all containers together; left out, nobody sees to them. */
  readonly caps?: CapsSeen | undefined;
  /** How containers are reached; left out, nobody sees to that. */
  readonly exposure?: ExposureSeen;
}

/** What is done to the container of one definition, of which `subject` is the id, to volumes, all of which go together, or beside them. */
export type ExecStep = ExposureStep | CapsStep | ContainerStep;

type ContainerStep = Step &
  (
    | {
        readonly kind: "create" | "replace" | "start" | "stop" | "update" | "adopt" | "define";
        readonly wanted: Wanted;
      }
    | { readonly kind: "suspend" | "remove"; readonly name: string }
    | {
        readonly kind: "create volume" | "put volume away" | "check volumes";
        readonly volumes: readonly VolumeSpec[];
        readonly used: ReadonlySet<string>;
      }
  );

const MAX_ISSUES = 1000;

/** The steps from what there is to what is desired. Pure. */
export function planExec(desired: ExecDesired, actual: ExecActual): readonly ExecStep[] {
  const { exposure } = actual;
  const target = exposureOf(desired, actual);
  return [
    // No container starts before all of them are held back.
    ...planCaps(desired.config.limits, actual.caps),
    // Where a container sends is settled before it starts.
    ...(exposure === undefined || target === undefined ? [] : planExposure(target, exposure)),
    ...containerSteps(desired, actual),
    ...(exposure?.state.hasNetwork === true && isEmpty(desired, actual) ? [NETWORK_STEP] : []),
  ];
}

const NETWORK_STEP: ExecStep = {
  kind: "remove network",
  subject: "network",
  guarded: false,
  detail: "takes away the network of the containers, which nothing uses",
};

/** How containers are to be reached; undefined while that cannot be known, and everything stays as it is. Pure. */
function exposureOf(desired: ExecDesired, actual: ExecActual): ExposureTarget | undefined {
  const { seen, isActive, placement, exposure } = actual;
  const left = leftOf(desired, seen);
  if (exposure === undefined) return undefined;
  if (!isActive || isEmpty(desired, actual)) return NOTHING_EXPOSED;
  if (seen.engine.state !== "well" || placement === undefined) return undefined;
  if (left.length === 0 && !desired.config.containers.some(isExposed)) return NOTHING_EXPOSED;
  if (left.some(({ wanted }) => wanted === undefined)) return undefined;
  const wanted = [...wantedOf(desired, actual), ...left.flatMap((work) => work.wanted ?? [])];
  return compileExposure(
    wanted.flatMap((one) => placedOf(one, seen.works.get(one.spec.id), placement.network.name)),
    exposure,
  );
}

/** Compiling definitions only to find that none is reached from elsewhere takes its time. */
function isExposed({ portMappings, interfaces, virtualNetworks, vrf }: ContainerSpec): boolean {
  return portMappings.length + interfaces.length + virtualNetworks.length > 0 || vrf !== undefined;
}

function isEmpty({ config, unreadable }: ExecDesired, { seen }: ExecActual): boolean {
  return config.containers.length === 0 && unreadable.size === 0 && seen.works.size === 0;
}

/** Those of which nobody can say what is wanted: as far as they are there they stay as they are. */
function leftOf({ config, unreadable, disabled }: ExecDesired, { works }: Seen): readonly WorkView[] {
  const ids = new Set(config.containers.map(({ id }) => id));
  const isLeft = (id: string): boolean => unreadable.has(id) || (config.isPartial === true && !disabled.has(id));
  return [...works.values()].filter(({ id, standing }) => !ids.has(id) && standing.goal.is !== "gone" && isLeft(id));
}

/** A service that is to run is reached also while it restarts; anything else while it runs. */
function placedOf({ spec, goal, blueprint }: Wanted, view: WorkView | undefined, network: string): readonly Placed[] {
  const found = view?.standing.found;
  const isUp = found !== undefined && found.is !== "stopped";
  if (goal.is !== "kept" || !goal.enabled) return [];
  const isDue = goal.execType === "service" && view?.row?.byHand !== goal.hash && goal.obstacle === undefined;
  if (!isUp && !isDue) return [];
  const now = isUp ? view?.container?.addresses[network] : undefined;
  const address = now === undefined || now === "" ? (blueprint?.address ?? view?.row?.address) : now;
  if (address === undefined) return [];
  return [{ spec, address, engineId: found?.is === "running" ? found.id : undefined }];
}

function containerSteps(desired: ExecDesired, actual: ExecActual): readonly ExecStep[] {
  const { seen, isActive, placement } = actual;
  if (seen.engine.state !== "well") return [];
  if (!isActive) return [...seen.works.values()].flatMap(suspension);
  if (placement === undefined) return [];
  const kept = new Set([...desired.config.containers, ...leftOf(desired, seen)].map(({ id }) => id));
  const removals = [...seen.works.values()]
    .filter(({ id, standing }) => !kept.has(id) && standing.goal.is !== "gone")
    .flatMap((work): readonly ExecStep[] => {
      const { id, row } = work;
      if (desired.disabled.has(id)) return suspension(work);
      return [{ kind: "remove", subject: id, guarded: false, removes: true, name: row?.name ?? id }];
    });
  return [
    ...removals,
    ...volumeSteps(desired, actual),
    ...wantedOf(desired, actual).flatMap((wanted) => stepOf(wanted, seen.works.get(wanted.spec.id))),
  ];
}

/** What keeps definitions from being as they are wanted. Pure. */
export function waitingExec(desired: ExecDesired, actual: ExecActual): readonly Issue[] {
  const { seen } = actual;
  if (seen.engine.state === "unwell") {
    const message = `exec: the container engine does not answer: ${seen.engine.reason}`;
    return [{ path: "exec", code: "engine-unwell", message: message.slice(0, 1024) }];
  }
  if (seen.engine.state === "unknown" || (seen.engine.state === "well" && seen.info === undefined)) {
    return [{ path: "exec", code: "engine-unwell", message: "exec: the container engine has not answered yet" }];
  }
  const paths = new Map(desired.config.containers.map(({ id, path }) => [id, path]));
  const volumePaths = new Map(desired.config.volumes.map(({ name, path }) => [name, path]));
  const volumes = actual.volumes.troubles.map(({ name, reason }): Issue => {
    const path = volumePaths.get(name) ?? "exec.volumes";
    return { path, code: "volume-unusable", message: `${path}: ${name}: ${reason}`.slice(0, 1024) };
  });
  const works = [...seen.works.values()].flatMap((work) => waitOf(work, paths.get(work.id), seen.now));
  const exposed = exposureOf(desired, actual)?.waits ?? [];
  return [...bridgeWaits(actual), ...volumes, ...works, ...exposed].slice(0, MAX_ISSUES);
}

/** The engine makes the link of its network when it starts, and not before. */
function bridgeWaits({ seen, isActive, exposure }: ExecActual): readonly Issue[] {
  if (exposure?.isBridgeGone !== true || !isActive) return [];
  if (![...seen.works.values()].some(({ standing: { found } }) => found !== undefined && found.is !== "stopped"))
    return [];
  const message = `exec: the link ${exposure.bridge} of the containers was taken away: they reach nothing until the engine is restarted`;
  return [{ path: "exec", code: "link-gone", message }];
}

/** What is served otherwise than it is written, as this machine is. Pure. */
export function noticesExec({ config }: ExecDesired, { seen, caps }: ExecActual): readonly Issue[] {
  const warnings = [...seen.works.values()].flatMap(({ wanted }): readonly Issue[] => {
    if (wanted === undefined) return [];
    const { path, name } = wanted.spec;
    return (wanted.blueprint?.warnings ?? []).map((warning) => ({
      path,
      code: "adjusted",
      message: `${path}: ${name}: ${warning}`.slice(0, 1024),
    }));
  });
  return [...capsNotices(config.limits, caps), ...warnings].slice(0, MAX_ISSUES);
}

/** What is wanted of each definition, in their order. Pure. */
export function wantedOf({ config }: ExecDesired, actual: ExecActual): readonly Wanted[] {
  const { seen, placement, addresses } = actual;
  if (placement === undefined) return [];
  const kept = new Map(
    [...seen.works.values()].flatMap(({ id, row }) => (row?.address === undefined ? [] : [[id, row.address] as const])),
  );
  const allotted = allotAddresses(config.containers, kept, addresses);
  const place = { reserved: addresses.reserved, isInside: (ip: string) => isHostOf(addresses.subnet, ip) };
  return config.containers.map((spec) => {
    const address = allotted.get(spec.id);
    const obstacle = placeObstacle(spec, config.containers, place, actual.exposure?.vrfs);
    return oneWanted(spec, { ...placement, ...(address === undefined ? {} : { address }) }, actual, obstacle);
  });
}

function oneWanted(
  spec: ContainerSpec,
  placement: Omit<Placement, "nonce">,
  actual: ExecActual,
  obstacle: string | undefined,
): Wanted {
  const { version, check } = actual;
  const view = actual.seen.works.get(spec.id);
  const compiled = compileContainer(spec, { ...placement, nonce: "" });
  if ("refused" in compiled) {
    const hash = view?.wanted?.blueprint?.hash ?? view?.row?.byHand ?? view?.standing.found?.hash ?? "";
    const goal = goalOf(spec, hash, placement, { obstacle: compiled.refused, heldUntil: undefined });
    const isForbidden = !compiled.isPassing && isRunningNow(spec, placement, view);
    return { spec, goal: isForbidden ? { ...goal, enabled: false } : goal, blueprint: undefined, version };
  }
  const heldUntil = heldOf(spec, actual, view);
  const forbidden = actual.forbidden?.get(spec.id);
  const goal = goalOf(spec, compiled.hash, placement, { obstacle: forbidden ?? obstacle, heldUntil });
  // What ran before by another definition stays until this one can be had.
  const isEnding = forbidden !== undefined && view?.standing.found?.hash === compiled.hash;
  return {
    spec,
    goal: isEnding ? { ...goal, enabled: false } : goal,
    blueprint: blueprintOf(spec, compiled, placement, check),
    version,
  };
}

/** Volumes are made before what mounts them, and put away when neither a definition nor a container has them. */
function volumeSteps(desired: ExecDesired, { seen, volumes: { kept, isSettled } }: ExecActual): readonly ExecStep[] {
  const { config, unreadable, disabled } = desired;
  const { volumes } = config;
  const specs = [...config.containers, ...[...seen.works.values()].flatMap(({ wanted }) => wanted?.spec ?? [])];
  // What a definition mounts that cannot be read, nobody knows.
  const isWhole = config.isPartial !== true && unreadable.size + disabled.size === 0;
  const used = new Set([
    ...specs.flatMap(({ mounts }) => mounts.flatMap(({ kind, source }) => (kind === "volume" ? [source] : []))),
    ...(config.leftVolumes ?? []),
    ...(isWhole ? [] : kept),
  ]);
  const step = (kind: "create volume" | "put volume away" | "check volumes", subject: string): ExecStep => ({
    kind,
    subject,
    guarded: false,
    volumes,
    used,
  });
  const names = new Set(volumes.map(({ name }) => name));
  const steps = [
    ...volumes.filter(({ name }) => !kept.has(name)).map(({ name }) => step("create volume", name)),
    ...[...kept].filter((name) => !names.has(name) && !used.has(name)).map((name) => step("put volume away", name)),
  ];
  return steps.length === 0 && !isSettled && kept.size > 0 ? [step("check volumes", "volumes")] : steps;
}

/** Whether the very thing that is forbidden is what runs. */
function isRunningNow(spec: ContainerSpec, placement: Omit<Placement, "nonce">, view: WorkView | undefined): boolean {
  const policy = { ...placement.policy, allowPrivileged: true };
  const compiled = compileContainer(spec, { ...placement, policy, nonce: "" });
  return "hash" in compiled && compiled.hash === view?.standing.found?.hash;
}

function goalOf(
  spec: ContainerSpec,
  hash: string,
  { volumes }: Pick<Placement, "volumes">,
  rest: { readonly obstacle: string | undefined; readonly heldUntil: number | undefined },
): Extract<Goal, { is: "kept" }> {
  const hasEncrypted = spec.mounts.some(({ kind, source }) => {
    const volume = kind === "volume" ? volumes(source) : undefined;
    return volume !== undefined && "isEncrypted" in volume && volume.isEncrypted;
  });
  const { execType, enabled } = spec;
  return { is: "kept", hash, execType, enabled, engineRestarts: restartPolicyOf(spec, hasEncrypted) !== "no", ...rest };
}

function blueprintOf(
  spec: ContainerSpec,
  compiled: Compiled,
  placement: Omit<Placement, "nonce">,
  check: ExecActual["check"],
): Blueprint {
  const { hash, limitsHash, image, update, memoryHighBytes, warnings } = compiled;
  return {
    hash,
    limitsHash,
    image: { ...image, repository: spec.image.repository },
    update,
    memoryHighBytes,
    warnings,
    address: spec.ip ?? placement.address,
    bodyOf: (nonce) => {
      const made = compileContainer(spec, { ...placement, nonce });
      return "body" in made ? made.body : compiled.body;
    },
    check: () => check(spec),
  };
}

/** A new service that is not whole may get the rest with the next document. */
function heldOf(spec: ContainerSpec, { seen, version }: ExecActual, view: WorkView | undefined): number | undefined {
  if (spec.execType !== "service" || spec.isExtended || view?.standing.found !== undefined) return undefined;
  const row = view?.row;
  if (row === undefined) return seen.now + HOLD_MS;
  const until = row.firstSeen + HOLD_MS;
  const isEarly = until > seen.now && row.firstSeen <= seen.now;
  return row.firstVersion === version && isEarly ? until : undefined;
}

function stepOf(wanted: Wanted, view: WorkView | undefined): readonly ExecStep[] {
  const kind = kindOf(wanted, view);
  return kind === undefined ? [] : [{ kind, subject: wanted.spec.id, guarded: false, wanted }];
}

type Kind = Extract<ContainerStep, { wanted: Wanted }>["kind"];

function kindOf(wanted: Wanted, view: WorkView | undefined): Kind | undefined {
  const { goal, blueprint } = wanted;
  if (goal.is !== "kept") return undefined;
  const found = view?.standing.found;
  const isUp = found !== undefined && found.is !== "stopped";
  if (view !== undefined && isTold(wanted, view)) {
    if (view.standing.isLost && goal.execType === "service") return "create";
    const isOther = isUp && found.hash === goal.hash && blueprint !== undefined && view.limits !== blueprint.limitsHash;
    return isOther && view.standing.job === undefined ? "update" : undefined;
  }
  if (!goal.enabled) return isUp ? "stop" : "define";
  const isDue = goal.execType === "service" && view?.row?.byHand !== goal.hash;
  const isHeld = goal.heldUntil !== undefined || goal.obstacle !== undefined;
  if (found === undefined) return isDue && !isHeld ? "create" : "define";
  if (found.hash !== goal.hash) return isDue && !isHeld ? "replace" : "define";
  if (isUp) return view?.wanted === undefined ? "adopt" : "define";
  return isDue && !isHeld ? "start" : "define";
}

/** Whether the keeper has been told just this. */
function isTold({ spec, goal, blueprint }: Wanted, { wanted, standing }: WorkView): boolean {
  const told = standing.goal;
  if (wanted === undefined || told.is !== "kept" || goal.is !== "kept") return false;
  const { heldUntil, ...rest } = goal;
  const { heldUntil: toldHeld, ...toldRest } = told;
  const isReleased = heldUntil === undefined && toldHeld !== undefined && standing.found === undefined;
  if (isReleased || !isDeepStrictEqual(rest, toldRest)) return false;
  if (!isDeepStrictEqual(wanted.blueprint?.image, blueprint?.image)) return false;
  return isDeepStrictEqual({ ...wanted.spec, path: "" }, { ...spec, path: "" });
}

function suspension({ id, row, standing }: WorkView): readonly ExecStep[] {
  const isUp = standing.found !== undefined && standing.found.is !== "stopped";
  if (standing.goal.is === "suspended" || (standing.goal.is === "unknown" && !isUp)) return [];
  return [{ kind: "suspend", subject: id, guarded: false, removes: true, name: row?.name ?? id }];
}

function waitOf(work: WorkView, path: string | undefined, now: number): readonly Issue[] {
  const { standing, wanted, row, id } = work;
  const obstacle = standing.goal.is === "kept" ? standing.goal.obstacle : undefined;
  if (standing.goal.is === "unknown" || !(isWanting(standing) || obstacle !== undefined)) return [];
  const { state, reason } = standsAt(standing, now);
  const at = path ?? wanted?.spec.path ?? "exec";
  const name = row?.name ?? id;
  // What runs may have an obstacle too: it would not start again.
  const why = reason ?? obstacle ?? (standing.goal.is === "gone" ? "is being removed" : state);
  return [{ path: at.slice(0, 512), code: state, message: `${at}: ${name}: ${why}`.slice(0, 1024) }];
}
