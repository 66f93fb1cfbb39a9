import type { MeshStanding } from "../../../host/overlay/client.ts";
import type { Clock } from "../../../host/clock.ts";
import type { MeshEvent, PathState } from "../../../protocol/overlay/mesh.ts";
import type { EventLog } from "../events.ts";
import {
  DISRUPTION,
  MESH_EVENTS,
  meshConditions,
  pathObject,
  viaText,
  type MeshPicture,
  type PathPicture,
} from "./mesh-conditions.ts";
import { watchConditions, type Condition } from "./condition-watch.ts";
import { defined } from "../../../lib/defined.ts";

/** Raises events of the mesh: faults, and recoveries of traffic. */
export interface MeshEvents {
  /** Evaluates the states of paths and clients; undefined if the overlay is unknown or there are no paths. */
  stands(standing: MeshStanding | undefined): void;
  /** Takes recoveries, with cause and duration. */
  happened(events: readonly MeshEvent[]): void;
  /** Handles the start or end of a session with the control plane. */
  refresh(): void;
  /** Raises nothing from now on: the end of this run is intended. */
  close(): void;
}

export interface MeshEventsOptions {
  readonly clock: Clock;
  readonly events: Pick<EventLog, "raise" | "clear" | "notice" | "isOpen" | "openEvents">;
  /** Returns the display name of a node; undefined if unknown. */
  readonly nameOf: (uid: string) => string | undefined;
  /** Reports whether a node is still a gateway. */
  readonly isGateway: (uid: string) => boolean;
  /** Reports whether the documents still give this node peers to reach. */
  readonly isWanted: () => boolean;
  /** Reports whether there is a session with the control plane. */
  readonly isOnline: () => boolean;
}

/** Time for a path to come up first, or for an overlay to return. */
const FIRST_UP_MS = 60_000;
const OVERLAY_BACK_MS = 10_000;
/** Time without fault after which a condition is cleared. */
const STABLE_MS = 10_000;
const MAX_NAMES = 10_000;

interface KnownPath {
  readonly firstSeen: number;
  readonly hasBeenUp: boolean;
  /** Remote address of its last connection. */
  readonly remote: PathState["remote"];
}

/** Recoveries that the overlay measured, by the object of the path's condition. */
type Recoveries = Map<string, { readonly cause: string; readonly durationMs: number }>;

export function meshEvents(options: MeshEventsOptions): MeshEvents {
  const { clock, events, nameOf, isGateway, isWanted, isOnline } = options;
  const known = new Map<string, KnownPath>();
  const recoveries: Recoveries = new Map();
  const names = new Map<string, string>();
  /** Paths of the last evaluation. */
  let objects: ReadonlySet<string> = new Set();
  let standing: MeshStanding | undefined;
  let goneAt: number | undefined;
  let hasClosed = false;
  let cancelTimer = (): void => undefined;

  const watch = watchConditions({
    clock,
    events,
    holdMs: 0,
    clearMs: STABLE_MS,
    read(now) {
      const seen = picture(now);
      objects = new Set(seen.paths.map(pathObject));
      wait(now);
      return meshConditions(seen);
    },
    adopt: ({ eventType, object, level, message }) =>
      OURS.has(eventType)
        ? { eventType, object, level, message, over: "Cleared: it was open when the agent started" }
        : undefined,
    isGone,
    // Paths of an earlier run need time to appear.
    isPremature: (condition) => standing === undefined || isGone(condition),
    clearing({ condition: { object, over, overLevel, details = {} }, since, endedAt, isGone }) {
      const recovery = recoveries.get(object);
      recoveries.delete(object);
      const { reason: _reason, ...shown } = details;
      if (isGone) return { message: `The path to ${object} is no longer in use`, details: shown };
      const took = { durationMs: Math.round(endedAt - since), ...recovery };
      return { message: over, ...defined({ level: overLevel }), details: { ...shown, ...took } };
    },
  });

  function isGone({ eventType, object }: Condition): boolean {
    return eventType === DISRUPTION && !objects.has(object);
  }

  function name(uid: string): string {
    const found = nameOf(uid);
    if (found !== undefined && (names.has(uid) || names.size < MAX_NAMES)) names.set(uid, found);
    return found ?? names.get(uid) ?? uid;
  }

  function picture(now: number): MeshPicture {
    const isGone = goneAt !== undefined && now >= goneAt + OVERLAY_BACK_MS;
    const paths = (standing?.paths ?? []).map((path) => pathPicture(path, isGone, now));
    const keys = new Set(paths.map(({ gateway, id }) => `${gateway} ${id}`));
    for (const key of known.keys()) if (!keys.has(key)) known.delete(key);
    return { paths, clients: isGone ? [] : (standing?.clients ?? []), isOnline: isOnline() };
  }

  function pathPicture(path: PathState, isGone: boolean, now: number): PathPicture {
    const { gateway, id } = path;
    const key = `${gateway} ${id}`;
    // A path that an earlier run reported lost was up then.
    const wasLost = events.isOpen(DISRUPTION, pathObject({ name: name(gateway), id }));
    const unknown = { firstSeen: now, hasBeenUp: wasLost, remote: undefined };
    const { firstSeen, hasBeenUp: wasUp, remote: led } = known.get(key) ?? unknown;
    const remote = path.remote ?? led;
    const state = isGone ? "down" : path.state;
    const reason = isGone ? "the overlay is not running" : path.reason;
    const hasBeenUp = wasUp || state === "up";
    known.set(key, { firstSeen, hasBeenUp, remote });
    return {
      gateway,
      id,
      state,
      reason,
      remote,
      name: name(gateway),
      hasBeenUp,
      isLost: state !== "up" && (hasBeenUp || now >= firstSeen + FIRST_UP_MS),
    };
  }

  /** Re-evaluates when a path has had its time to come up, or the overlay its time to return. */
  function wait(now: number): void {
    cancelTimer();
    const times = [
      ...(goneAt === undefined ? [] : [goneAt + OVERLAY_BACK_MS]),
      ...[...known.values()].flatMap(({ firstSeen, hasBeenUp }) => (hasBeenUp ? [] : [firstSeen + FIRST_UP_MS])),
    ].filter((time) => time > now);
    if (times.length > 0) cancelTimer = clock.after(Math.min(...times) - now, watch.refresh);
  }

  function happen(event: MeshEvent): void {
    const { kind, gateway, path = "", peer, from, cause, durationMs } = event;
    const took = durationMs === undefined ? {} : { durationMs: Math.round(durationMs) };
    switch (kind) {
      case "path-back": {
        if (gateway === undefined || durationMs === undefined) return;
        const object = pathObject({ name: name(gateway), id: path });
        if (events.isOpen(DISRUPTION, object)) recoveries.set(object, { cause, durationMs: Math.round(durationMs) });
        return;
      }
      case "moved": {
        if (gateway === undefined) return;
        const to = pathObject({ name: name(gateway), id: path });
        const before = from === undefined ? undefined : pathObject({ name: name(from.gateway), id: from.path });
        const within = durationMs === undefined ? "" : ` in ${Math.round(durationMs)} ms`;
        return events.notice({
          eventType: FAILOVER,
          object: to,
          level: "INFO",
          message: `Traffic goes by ${to}${before === undefined ? "" : ` instead of ${before}`}${within}: ${cause}`,
          details: { to, ...defined({ from: before }), cause, ...took },
        });
      }
      case "gateway-removed": {
        // A gateway that this node merely stopped dialling still counts.
        if (gateway === undefined || isGateway(gateway)) return;
        return events.notice({
          eventType: DISRUPTION,
          object: name(gateway),
          level: "WARNING",
          message: `Gateway ${name(gateway)} removed from the domain`,
          details: { peer: name(gateway), cause },
        });
      }
      case "session-back": {
        if (peer === undefined) return;
        const via = gateway === undefined ? "" : ` via ${name(gateway)} ${viaText(path)}`;
        const after = durationMs === undefined ? "" : ` after ${Math.round(durationMs)} ms`;
        return events.notice({
          eventType: FAILOVER,
          object: name(peer),
          level: "INFO",
          message: `Node ${name(peer)} is reached again${via}${after}: ${cause}`,
          details: { peer: name(peer), cause, ...took },
        });
      }
      // States cover these; a lost session is reported when it returns.
      case "path-lost":
      case "client-lost":
      case "client-back":
      case "session-lost":
    }
  }

  watch.refresh();
  return {
    stands(next) {
      if (next !== undefined) {
        standing = next;
        goneAt = undefined;
      } else if (isWanted()) goneAt ??= clock.elapsed();
      else [standing, goneAt] = [undefined, undefined];
      watch.refresh();
    },
    happened(list) {
      if (hasClosed) return;
      const isQuiet = clock.elapsed() < watch.quietUntil;
      // Recoveries of lost traffic and changes of the domain document are reported also during the quiet time.
      const isReported = ({ kind, durationMs }: MeshEvent): boolean =>
        !isQuiet || durationMs !== undefined || kind === "gateway-removed";
      for (const event of list.filter(isReported)) happen(event);
    },
    refresh: watch.refresh,
    close() {
      hasClosed = true;
      watch.close();
      cancelTimer();
    },
  };
}

const FAILOVER = "Data Plane Failover";
const OURS: ReadonlySet<string> = new Set(Object.values(MESH_EVENTS));
