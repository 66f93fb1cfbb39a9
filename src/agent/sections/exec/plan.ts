import { isDeepStrictEqual } from "node:util";
import type { ContainerSpec, VolumeSpec } from "../../../protocol/sections/exec/config.ts";
import { rangeConflict } from "../../containers/model/container-network.ts";
import { isWanting, standsAt } from "../../containers/model/standing.ts";
import type { Seen, WorkView } from "../../containers/supervision/seen.ts";
import type { Tampered } from "../../containers/supervision/running-settings.ts";
import type { Wanted } from "../../containers/model/wanted.ts";
import type { Issue, Step } from "../../reconcile/section.ts";
import type { ExecActual, ExecDesired } from "./actual.ts";
import { capsNotices, capsWaits, planCaps, type CapsStep } from "./caps.ts";
import { compileExposure, type ExposureTarget, type Placed } from "./exposure.ts";
import { NOTHING_EXPOSED, planExposure, type ExposureStep } from "./exposure-plan.ts";
import { wantedOf } from "./wanted-of.ts";

/** A step for the container of one definition (`subject` is its id), for all volumes, or for exposure and limits. */
export type ExecStep = ExposureStep | CapsStep | ContainerStep;

type ContainerStep = Step &
  (
    | {
        readonly kind: "create" | "replace" | "start" | "stop" | "update" | "adopt" | "define";
        readonly wanted: Wanted;
      }
    /** Changes that somebody made at the engine. */
    | { readonly kind: "restore settings" | "restore network"; readonly name: string; readonly tampered: Tampered }
    | { readonly kind: "suspend" | "remove"; readonly name: string }
    | {
        readonly kind: "create volume" | "put volume away" | "check volumes";
        readonly volumes: readonly VolumeSpec[];
        readonly used: ReadonlySet<string>;
      }
  );

const MAX_ISSUES = 1000;

/** Plans the steps from the observed to the desired state. Pure. */
export function planExec(desired: ExecDesired, actual: ExecActual): readonly ExecStep[] {
  const { exposure } = actual;
  const target = exposureOf(desired, actual);
  return [
    // The common limits apply before the first container starts.
    ...planCaps(desired.config.limits, actual.caps),
    ...linkSteps(actual),
    // The routes of a container are set before it starts.
    ...(exposure === undefined || target === undefined ? [] : planExposure(target, exposure)),
    ...containerSteps(desired, actual),
    ...(exposure?.state.hasNetwork === true && isEmpty(desired, actual) ? [NETWORK_STEP] : []),
  ];
}

const NETWORK_STEP: ExecStep = {
  kind: "remove network",
  subject: "network",
  guarded: false,
  detail: "removes the unused container network",
};

/** Restores a deleted container bridge. Engines other than Docker delete it with the last container. */
function linkSteps({ seen, isActive, placement, exposure }: ExecActual): readonly ExecStep[] {
  if (exposure?.isBridgeGone !== true || !isActive || seen.engine.state !== "well") return [];
  const containers = [...seen.works.values()].flatMap(({ standing: { found } }) =>
    found === undefined || found.is === "stopped" ? [] : [found.id],
  );
  if (containers.length === 0 && placement?.product !== "docker") return [];
  const detail = `recreates the container bridge ${exposure.bridge}; containers on it: ${containers.length}`;
  return [{ kind: "restore link", subject: exposure.bridge, guarded: false, detail, containers }];
}

/** Computes how containers are reached; undefined if unknown, and nothing changes then. Pure. */
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

/** Avoids compiling definitions if none has ports or routes. */
function isExposed({ portMappings, interfaces, virtualNetworks, vrf }: ContainerSpec): boolean {
  return portMappings.length + interfaces.length + virtualNetworks.length > 0 || vrf !== undefined;
}

function isEmpty({ config, unreadable }: ExecDesired, { seen }: ExecActual): boolean {
  return config.containers.length === 0 && unreadable.size === 0 && seen.works.size === 0;
}

/** Ids of definitions without a known desired state; their containers stay unchanged. */
function leftOf({ config, unreadable, disabled }: ExecDesired, { works }: Seen): readonly WorkView[] {
  const ids = new Set(config.containers.map(({ id }) => id));
  const isLeft = (id: string): boolean => unreadable.has(id) || (config.isPartial === true && !disabled.has(id));
  return [...works.values()].filter(({ id, standing }) => !ids.has(id) && standing.goal.is !== "gone" && isLeft(id));
}

/** Reports whether a container is reachable: a service also while it restarts, any other only while it runs. */
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
    // The definition is unreadable, but known to be disabled.
    ...leftOf(desired, seen).flatMap((work) => (actual.outlawed?.has(work.id) === true ? suspension(work) : [])),
    ...volumeSteps(desired, actual),
    ...wantedOf(desired, actual).flatMap((wanted) => stepOf(wanted, seen.works.get(wanted.spec.id))),
  ];
}

/** Lists why definitions are not in their desired state. Pure. */
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
  const works = [...seen.works.values()].flatMap((work) =>
    waitOf(work, paths.get(work.id), seen.now).concat(limitsWait(work, paths.get(work.id))),
  );
  const exposed = exposureOf(desired, actual)?.waits ?? [];
  return [
    ...bridgeWaits(actual),
    ...capsWaits(desired.config.limits, actual.caps),
    ...volumes,
    ...works,
    ...exposed,
  ].slice(0, MAX_ISSUES);
}

/** Reports issues of the bridge of running containers, such as one that could not be restored. */
function bridgeWaits({ seen, isActive, exposure }: ExecActual): readonly Issue[] {
  if (exposure === undefined || !isActive) return [];
  if (![...seen.works.values()].some(({ standing: { found } }) => found !== undefined && found.is !== "stopped"))
    return [];
  const conflict = rangeConflict(exposure.subnet, exposure.addresses);
  if (conflict !== undefined) return [{ path: "exec", code: "address-conflict", message: `exec: ${conflict}` }];
  if (exposure.isBridgeGone !== true) return [];
  const message = `exec: the container bridge ${exposure.bridge} was deleted: containers reach nothing until it is restored`;
  return [{ path: "exec", code: "link-gone", message }];
}

/** Lists settings that this machine applies differently from how they are written. Pure. */
export function noticesExec({ config }: ExecDesired, { seen, caps }: ExecActual): readonly Issue[] {
  const warnings = [...seen.works.values()].flatMap(({ wanted, unaskedImage, unsetFields = [] }): readonly Issue[] => {
    if (wanted === undefined) return [];
    const { path, name } = wanted.spec;
    const issue = (code: string, text: string): Issue => ({
      path,
      code,
      message: `${path}: ${name}: ${text}`.slice(0, 1024),
    });
    const image = wanted.blueprint?.image.reference;
    const unset = `the container engine does not set ${unsetFields.join(", ")} as requested`;
    const adjusted = (wanted.blueprint?.warnings ?? [])
      .map((warning) => issue("adjusted", warning))
      .concat(unsetFields.length === 0 ? [] : issue("limits-unsupported", unset));
    if (unaskedImage === undefined || unaskedImage.reference !== image) return adjusted;
    const text = `the local image ${image} is used: ${unaskedImage.reason}`;
    return adjusted.concat(issue("image-not-compared", text));
  });
  return [...capsNotices(config.limits, caps), ...warnings].slice(0, MAX_ISSUES);
}

/** Plans volume steps: volumes are created before their containers, and quarantined once no definition or container uses them. */
function volumeSteps(desired: ExecDesired, { seen, volumes: { kept, isSettled } }: ExecActual): readonly ExecStep[] {
  const { config, unreadable, disabled } = desired;
  const { volumes } = config;
  const specs = [...config.containers, ...[...seen.works.values()].flatMap(({ wanted }) => wanted?.spec ?? [])];
  // The mounts of unreadable definitions are unknown.
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

function stepOf(wanted: Wanted, view: WorkView | undefined): readonly ExecStep[] {
  const { id: subject, name } = wanted.spec;
  const kind = kindOf(wanted, view);
  if (kind !== undefined) return [{ kind, subject, name, guarded: false, wanted }];
  const tampered = view?.tampered;
  if (wanted.blueprint === undefined || tampered === undefined) return [];
  const restore = (what: "restore settings" | "restore network"): ExecStep => ({
    kind: what,
    subject,
    name,
    guarded: false,
    tampered,
  });
  const isRefused = view?.refusedLimits?.limits === wanted.blueprint.limitsHash;
  return [
    ...(tampered.fields.length > 0 && !isRefused ? [restore("restore settings")] : []),
    ...(tampered.attachment === undefined ? [] : [restore("restore network")]),
  ];
}

type Kind = Extract<ContainerStep, { wanted: Wanted }>["kind"];

function kindOf(wanted: Wanted, view: WorkView | undefined): Kind | undefined {
  const { goal, blueprint } = wanted;
  if (goal.is !== "kept") return undefined;
  const found = view?.standing.found;
  const isUp = found !== undefined && found.is !== "stopped";
  if (view !== undefined && isUnchanged(wanted, view)) {
    if (view.standing.isLost && goal.execType === "service") return "create";
    const isOther = isUp && found.hash === goal.hash && blueprint !== undefined && view.limits !== blueprint.limitsHash;
    if (blueprint !== undefined && view.refusedLimits?.limits === blueprint.limitsHash) return undefined;
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

/** Reports whether the supervisor already has this desired state. */
function isUnchanged({ spec, goal, blueprint }: Wanted, { wanted, standing }: WorkView): boolean {
  const current = standing.goal;
  if (wanted === undefined || current.is !== "kept" || goal.is !== "kept") return false;
  const { heldUntil, ...rest } = goal;
  const { heldUntil: currentHeld, ...currentRest } = current;
  const isReleased = heldUntil === undefined && currentHeld !== undefined && standing.found === undefined;
  if (isReleased || !isDeepStrictEqual(rest, currentRest)) return false;
  if (!isDeepStrictEqual(wanted.blueprint?.image, blueprint?.image)) return false;
  return isDeepStrictEqual({ ...wanted.spec, path: "" }, { ...spec, path: "" });
}

function suspension({ id, row, standing }: WorkView): readonly ExecStep[] {
  const isUp = standing.found !== undefined && standing.found.is !== "stopped";
  if (standing.goal.is === "suspended" || (standing.goal.is === "unknown" && !isUp)) return [];
  return [{ kind: "suspend", subject: id, guarded: false, removes: true, name: row?.name ?? id }];
}

/** Reports limits that could not be changed; the container runs with its previous ones. */
function limitsWait({ wanted, refusedLimits, standing }: WorkView, path: string | undefined): readonly Issue[] {
  if (wanted?.blueprint === undefined || refusedLimits?.limits !== wanted.blueprint.limitsHash) return [];
  if (standing.found === undefined || standing.found.is === "stopped") return [];
  const at = path ?? wanted.spec.path;
  const message = `${at}: ${wanted.spec.name}: its limits could not be changed: ${refusedLimits.reason}`;
  return [{ path: at.slice(0, 512), code: "limits-refused", message: message.slice(0, 1024) }];
}

function waitOf(work: WorkView, path: string | undefined, now: number): readonly Issue[] {
  const { standing, wanted, row, id } = work;
  const obstacle = standing.goal.is === "kept" ? standing.goal.obstacle : undefined;
  if (standing.goal.is === "unknown" || !(isWanting(standing) || obstacle !== undefined)) return [];
  const { state, reason } = standsAt(standing, now);
  const at = path ?? wanted?.spec.path ?? "exec";
  const name = row?.name ?? id;
  // A running container may have an obstacle too: it could not start again.
  const why = reason ?? obstacle ?? (standing.goal.is === "gone" ? "is being removed" : state);
  const code = why === standing.lastFailure ? (standing.failureCode ?? state) : state;
  return [{ path: at.slice(0, 512), code, message: `${at}: ${name}: ${why}`.slice(0, 1024) }];
}
