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

/** How paths, clients and the node's own gateway stand. */
export type MeshStanding = Omit<MeshState, "sessions">;

/** What the overlay has, and how that stands. */
export interface OverlayView {
  readonly services: ReadonlyMap<string, OverlayService>;
  /** By key. */
  readonly listeners: ReadonlyMap<string, OverlayListener>;
  /** By key. */
  readonly states: ReadonlyMap<string, ListenerState>;
  /** By name; only of services whose health is judged. */
  readonly health: ReadonlyMap<string, ServiceHealth>;
  /** Absent while the table leads to no other node. */
  readonly mesh?: OverlayMesh | undefined;
  /** Absent until it was heard, and while there is no mesh. */
  readonly standing?: MeshStanding | undefined;
}

/** Entries of parts of the table to be put in, by their identity, or taken out; `mesh`, where it is named, as a whole. */
export interface OverlayEdit {
  readonly services?: { readonly put: readonly OverlayService[]; readonly drop: readonly string[] };
  readonly listeners?: { readonly put: readonly OverlayListener[]; readonly drop: readonly string[] };
  readonly mesh?: OverlayMesh | undefined;
}

/** What the overlay was last seen to have, and which table that is. */
export type Known = { readonly hash: string; readonly version: number } & OverlayView;

/** What an overlay has that is not there. */
export const NOTHING: OverlayView = { services: new Map(), listeners: new Map(), states: new Map(), health: new Map() };

/** A table in another version's form. */
export const UNREADABLE = { hash: "", version: 0, table: undefined, listeners: [], services: [] };

/** The form before other nodes were known, which an older overlay takes too. */
const LOCAL_FORMAT = 1;

/** What a view is after an edit, as far as it is the table's. Pure. */
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

/** The table that says what is wanted, in the oldest form that can say it. Pure. */
export function tableOf(
  { services, listeners, mesh }: Pick<OverlayView, "services" | "listeners" | "mesh">,
  version: number,
): OverlayTable {
  const table = { version, services: [...services.values()], listeners: [...listeners.values()] };
  const isLocal = mesh === undefined && !table.listeners.some(({ target }) => "peer" in target);
  if (isLocal) return { format: LOCAL_FORMAT, ...table };
  return { format: OVERLAY_FORMAT, ...table, ...defined({ mesh }) };
}

/** Whether an edit is about other nodes, which an overlay of the form before does not know. */
export function needsMesh(edit: OverlayEdit): boolean {
  return edit.mesh !== undefined || (edit.listeners?.put.some(({ target }) => "peer" in target) ?? false);
}

/** What of an edit an overlay takes that knows no other nodes. Pure. */
export function withoutPeers({ services, listeners }: OverlayEdit): OverlayEdit {
  const put = listeners?.put.filter(({ target }) => !("peer" in target)) ?? [];
  return {
    ...defined({ services }),
    ...(listeners === undefined ? {} : { listeners: { ...listeners, put } }),
  };
}

/** Whether an edit says something of the mesh, be it that there is none. */
export function editsMesh(edit: OverlayEdit): boolean {
  return Object.hasOwn(edit, "mesh");
}

/** Names and keys of what an edit puts in or takes out. */
export function idsOf({ services, listeners }: OverlayEdit): ReadonlySet<string> {
  return new Set([
    ...(services?.put.map(({ name }) => name) ?? []),
    ...(services?.drop ?? []),
    ...(listeners?.put.map(({ key }) => key) ?? []),
    ...(listeners?.drop ?? []),
  ]);
}

/** What is known once listeners stand otherwise, and the keys of those of which that is news. Pure. */
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

/** The same of services, by their names. Pure. */
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

/** Whether the node's own gateway stands otherwise than before, which is all of a mesh that its configuration waits for. Pure. */
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
