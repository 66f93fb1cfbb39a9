import type { ContainersReport, ContainerView, VolumesReport, VolumeView } from "../../protocol/local/containers.ts";
import type { Compute, ContainerStatus, VolumeStatus } from "./model/compute.ts";
import { defined } from "../../lib/defined.ts";

/** Returns the local report of the containers, from memory and free of secrets. Pure. */
export function containersReport(compute: Pick<Compute, "engine" | "containers"> | undefined): ContainersReport {
  if (compute === undefined) return { schema: 1, engine: { state: "unused", since: 0 }, containers: [] };
  const { state, since, reason } = compute.engine;
  return {
    schema: 1,
    engine: { state, since, ...(reason === undefined ? {} : { reason: reason.slice(0, MAX_REASON) }) },
    containers: compute.containers().map(viewOf),
  };
}

/** Returns the local report of the volumes. Pure. */
export function volumesReport(compute: Pick<Compute, "volumes"> | undefined): VolumesReport {
  return { schema: 1, volumes: (compute?.volumes() ?? []).map(volumeOf) };
}

const MAX_REASON = 4096;
const MAX_USERS = 1000;

function volumeOf({ name, state, reason, encrypted, path, usedBy }: VolumeStatus): VolumeView {
  return {
    name,
    state,
    encrypted,
    usedBy: usedBy.slice(0, MAX_USERS),
    ...(reason === undefined ? {} : { reason: reason.slice(0, MAX_REASON) }),
    ...defined({ path }),
  };
}

function viewOf(status: ContainerStatus): ContainerView {
  const { reason, nextAttempt, nextRun, health, lastExitCode, imageId, engineId, address } = status;
  const { id, name, execType: type, enabled, state, since, isStoppedByHand: stoppedByHand, restarts, image } = status;
  return {
    id,
    name,
    type,
    enabled,
    state,
    since,
    stoppedByHand,
    restarts,
    image: { repository: image.repository, tag: image.tag },
    ...(reason === undefined ? {} : { reason: reason.slice(0, MAX_REASON) }),
    ...(nextAttempt === undefined ? {} : { nextAttempt: Math.round(nextAttempt) }),
    ...(nextRun === undefined ? {} : { nextRun: Math.round(nextRun) }),
    ...defined({ health, lastExitCode, imageId, engineId, address }),
  };
}
