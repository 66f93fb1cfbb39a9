import type { MeshState, OverlayMesh } from "../../protocol/overlay/mesh.ts";
import {
  OVERLAY_FORMAT,
  type ListenerState,
  type OverlayListener,
  type OverlayService,
  type OverlayTable,
  type ServiceHealth,
} from "../../protocol/overlay/overlay.ts";
import { defined } from "../../lib/defined.ts";

/** State of paths, clients and the node's own gateway. */
export type MeshStanding = Omit<MeshState, "sessions">;

/** The overlay's table and its state. */
export interface OverlayView {
  readonly services: ReadonlyMap<string, OverlayService>;
  /** By key. */
  readonly listeners: ReadonlyMap<string, OverlayListener>;
  /** By key. */
  readonly states: ReadonlyMap<string, ListenerState>;
  /** Health by service name; only services with a health check. */
  readonly health: ReadonlyMap<string, ServiceHealth>;
  /** Absent if no entry targets another node. */
  readonly mesh?: OverlayMesh | undefined;
  /** Absent until it was received, and without a mesh. */
  readonly standing?: MeshStanding | undefined;
}

/** Entries to add, replace or remove, by name or key. `mesh`, if present, is replaced as a whole. */
export interface OverlayEdit {
  readonly services?: { readonly put: readonly OverlayService[]; readonly drop: readonly string[] };
  readonly listeners?: { readonly put: readonly OverlayListener[]; readonly drop: readonly string[] };
  readonly mesh?: OverlayMesh | undefined;
}

/** The overlay's last known table and state, with the table's version and hash. */
export type Known = { readonly hash: string; readonly version: number } & OverlayView;

/** View without an overlay. */
export const NOTHING: OverlayView = { services: new Map(), listeners: new Map(), states: new Map(), health: new Map() };

/** Stands for a table in the format of another version. */
export const UNREADABLE = { hash: "", version: 0, table: undefined, listeners: [], services: [] };

/** Table format without other nodes, which older overlays support. */
const LOCAL_FORMAT = 1;

/** Returns the table's entries after an edit. Pure. */
export function viewAfter(
  before: OverlayView,
  edit: OverlayEdit,
): Pick<OverlayView, "services" | "listeners" | "mesh"> {
  return {
    services: edited(before.services, edit.services, ({ name }) => name),
    listeners: edited(before.listeners, edit.listeners, ({ key }) => key),
    mesh: editsMesh(edit) ? edit.mesh : before.mesh,
  };
}

/** Builds the table in the oldest format that can express it. Pure. */
export function tableOf(
  { services, listeners, mesh }: Pick<OverlayView, "services" | "listeners" | "mesh">,
  version: number,
): OverlayTable {
  const table = { version, services: [...services.values()], listeners: [...listeners.values()] };
  const isLocal = mesh === undefined && !table.listeners.some(({ target }) => "peer" in target);
  if (isLocal) return { format: LOCAL_FORMAT, ...table };
  return { format: OVERLAY_FORMAT, ...table, ...defined({ mesh }) };
}

/** Reports whether an edit needs support for other nodes. */
export function needsMesh(edit: OverlayEdit): boolean {
  return edit.mesh !== undefined || (edit.listeners?.put.some(({ target }) => "peer" in target) ?? false);
}

/** Returns the part of an edit that an overlay without support for other nodes accepts. Pure. */
export function withoutPeers({ services, listeners }: OverlayEdit): OverlayEdit {
  const put = listeners?.put.filter(({ target }) => !("peer" in target)) ?? [];
  return {
    ...defined({ services }),
    ...(listeners === undefined ? {} : { listeners: { ...listeners, put } }),
  };
}

/** Reports whether an edit sets or removes the mesh. */
export function editsMesh(edit: OverlayEdit): boolean {
  return Object.hasOwn(edit, "mesh");
}

/** Returns the names and keys of the entries that an edit changes. */
export function idsOf({ services, listeners }: OverlayEdit): ReadonlySet<string> {
  return new Set([
    ...(services?.put.map(({ name }) => name) ?? []),
    ...(services?.drop ?? []),
    ...(listeners?.put.map(({ key }) => key) ?? []),
    ...(listeners?.drop ?? []),
  ]);
}

/** Returns the view with new listener states, and the keys of the listeners that changed. Pure. */
export function withStates(
  known: Known | undefined,
  changed: readonly ListenerState[],
): readonly [Known | undefined, readonly string[]] {
  const news = changed.filter((state) => JSON.stringify(known?.states.get(state.key)) !== JSON.stringify(state));
  const keys = news.map(({ key }) => key);
  if (known === undefined) return [undefined, keys];
  const states = new Map([...known.states, ...changed.map((state) => [state.key, state] as const)]);
  return [{ ...known, states }, keys];
}

/** Returns the view with new service health, and the names of the services that changed. Pure. */
export function withHealth(
  known: Known | undefined,
  changed: readonly ServiceHealth[],
): readonly [Known | undefined, readonly string[]] {
  const news = changed.filter(({ name, state }) => known?.health.get(name)?.state !== state);
  const names = news.map(({ name }) => name);
  if (known === undefined) return [undefined, names];
  const health = new Map([...known.health, ...changed.map((service) => [service.name, service] as const)]);
  return [{ ...known, health }, names];
}

/** Reports whether the state of the node's own gateway has changed, the only part of a mesh that its section waits for. Pure. */
export function isServerNews(before: MeshStanding | undefined, after: MeshStanding): boolean {
  const [was, is] = [before?.server, after.server];
  return was?.state !== is.state || was.reason !== is.reason;
}

function edited<T>(
  before: ReadonlyMap<string, T>,
  edit: { readonly put: readonly T[]; readonly drop: readonly string[] } | undefined,
  identity: (entry: T) => string,
): ReadonlyMap<string, T> {
  if (edit === undefined) return before;
  const dropped = new Set(edit.drop);
  const kept = [...before].filter(([key]) => !dropped.has(key));
  return new Map([...kept, ...edit.put.map((entry) => [identity(entry), entry] as const)]);
}
