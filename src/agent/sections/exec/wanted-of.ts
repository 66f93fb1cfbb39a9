import type { ContainerSpec } from "../../../protocol/sections/exec/config.ts";
import { privilegesText } from "../../containers/supervision/privileges.ts";
import type { WorkView } from "../../containers/supervision/seen.ts";
import { HOLD_MS, type Goal } from "../../containers/model/standing.ts";
import type { Blueprint, Wanted } from "../../containers/model/wanted.ts";
import type { ExecActual, ExecDesired } from "./actual.ts";
import { allotAddresses, isHostOf } from "./addresses.ts";
import { compileContainer, restartPolicyOf, type Compiled, type Placement } from "./compile.ts";
import { placeObstacle } from "./exposure.ts";
import { defined } from "../../../lib/defined.ts";

/** Returns the desired state of each definition, in the same order. Pure. */
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
    return oneWanted(spec, { ...placement, ...defined({ address }) }, actual, obstacle);
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
  // The running container is stopped first, even if its successor can never start.
  const outlawed = actual.outlawed?.get(spec.id);
  if ("refused" in compiled) {
    const hash = view?.wanted?.blueprint?.hash ?? view?.row?.byHand ?? view?.standing.found?.hash ?? "";
    const goal = goalOf(spec, hash, placement, { obstacle: compiled.refused, heldUntil: undefined });
    const isForbidden = outlawed !== undefined || (!compiled.isPassing && isRunningNow(spec, placement, view));
    return { spec, goal: isForbidden ? { ...goal, enabled: false } : goal, blueprint: undefined, version };
  }
  const heldUntil = heldOf(spec, actual, view);
  const forbidden = actual.forbidden?.get(spec.id);
  const former = outlawed === undefined ? undefined : `the running container is stopped: ${outlawed}`;
  const goal = goalOf(spec, compiled.hash, placement, { obstacle: forbidden ?? former ?? obstacle, heldUntil });
  // An allowed container of an earlier definition keeps running until the new one can start.
  const isEnding = outlawed !== undefined || (forbidden !== undefined && view?.standing.found?.hash === compiled.hash);
  return {
    spec,
    goal: isEnding ? { ...goal, enabled: false } : goal,
    blueprint: blueprintOf(spec, compiled, placement, check),
    version,
  };
}

/** Reports whether the forbidden definition is the one that runs. */
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
  const { hash, limitsHash, image, update, upheld, memoryHighBytes, warnings } = compiled;
  return {
    hash,
    limitsHash,
    image: { ...image, repository: spec.image.repository },
    update,
    upheld,
    memoryHighBytes,
    warnings,
    privileges: privilegesText(spec),
    address: spec.ip ?? placement.address,
    bodyOf: (nonce) => {
      const made = compileContainer(spec, { ...placement, nonce });
      return "body" in made ? made.body : compiled.body;
    },
    check: () => check(spec),
  };
}

/** Returns until when an incomplete new service is held, since the next document may complete it. */
function heldOf(spec: ContainerSpec, { seen, version }: ExecActual, view: WorkView | undefined): number | undefined {
  if (spec.execType !== "service" || spec.isExtended || view?.standing.found !== undefined) return undefined;
  const row = view?.row;
  if (row === undefined) return seen.now + HOLD_MS;
  const until = row.firstSeen + HOLD_MS;
  const isEarly = until > seen.now && row.firstSeen <= seen.now;
  return row.firstVersion === version && isEarly ? until : undefined;
}
