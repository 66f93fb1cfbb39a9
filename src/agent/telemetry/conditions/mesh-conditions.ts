import type { ClientState, PathState } from "../../../protocol/overlay/mesh.ts";
import type { EventInput } from "../events.ts";
import type { Condition } from "./condition-watch.ts";
import { defined } from "../../../lib/defined.ts";

/** Inputs of the mesh's conditions at one moment. */
export interface MeshPicture {
  readonly paths: readonly PathPicture[];
  readonly clients: readonly Pick<ClientState, "state">[];
  /** True if there is a session with the control plane. */
  readonly isOnline: boolean;
}

/** A path that this node must keep up; `isLost` if it was up, or has had its time to come up. */
export interface PathPicture extends Pick<PathState, "gateway" | "id" | "state" | "reason" | "remote"> {
  /** Display name of the gateway. */
  readonly name: string;
  readonly hasBeenUp: boolean;
  readonly isLost: boolean;
}

export const DISRUPTION = "Data Plane Disruption";
/** Event types raised here, so that conditions of an earlier run are recognized. */
export const MESH_EVENTS = {
  disruption: DISRUPTION,
  gateways: "All Gateways Disconnected",
  peers: "All Peers Disconnected",
  both: "Data and Control Plane Disruption",
} as const;
const GATEWAYS = "gateways";
const PEERS = "peers";
const PLANES = "planes";

/** Lists all faults of the paths that this node initiates, and of its clients. Pure. */
export function meshConditions({ paths, clients, isOnline }: MeshPicture): readonly Condition[] {
  const isAlone = paths.length > 0 && paths.every(({ isLost }) => isLost);
  const isForsaken = clients.length > 0 && clients.every(({ state }) => state === "down");
  return [
    ...paths.filter(({ isLost }) => isLost).map(disruption),
    ...(isAlone
      ? [
          condition(MESH_EVENTS.gateways, GATEWAYS, "WARNING", "Number of connected gateways has dropped to zero", {
            over: "Number of connected gateways is no longer zero",
          }),
        ]
      : []),
    ...(isForsaken
      ? [
          condition(MESH_EVENTS.peers, PEERS, "WARNING", "Number of connected peers has dropped to zero", {
            over: "Number of connected peers is no longer zero",
            overLevel: "WARNING",
          }),
        ]
      : []),
    ...(isAlone && !isOnline
      ? [
          condition(MESH_EVENTS.both, PLANES, "ERROR", "Data and Control plane connection is down", {
            over: "Data and Control plane connection is up",
          }),
        ]
      : []),
  ];
}

/** Returns the object of a path's condition. */
export function pathObject({ name, id }: Pick<PathPicture, "name" | "id">): string {
  return id === "" ? name : `${name}/${id}`;
}

/** Names a path; the built-in one leads over the internet. */
export function viaText(id: string): string {
  return id === "" ? "Internet path" : `path ${id}`;
}

function disruption(path: PathPicture): Condition {
  const { name, id, reason, remote, hasBeenUp } = path;
  const who = `Node ${name} via ${viaText(id)}`;
  const because = reason === undefined ? "" : `: ${reason}`;
  return {
    ...condition(
      DISRUPTION,
      pathObject(path),
      "WARNING",
      `${who} ${hasBeenUp ? "abnormally disconnected" : `cannot be connected${because}`}`,
      { over: `${who} is connected again` },
    ),
    details: {
      peer: name,
      path: id === "" ? "default" : id,
      ...defined({ reason }),
      ...(remote === undefined ? {} : { endpoint: `${remote.ip}:${remote.port}` }),
    },
  };
}

function condition(
  eventType: string,
  object: string,
  level: EventInput["level"],
  message: string,
  end: Pick<Condition, "over" | "overLevel">,
): Condition {
  return { eventType, object, level, message, ...end };
}
