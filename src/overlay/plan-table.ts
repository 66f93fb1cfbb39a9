import type { OverlayListener, OverlayService, OverlayTable } from "../protocol/overlay/overlay.ts";
import { droppedBy, leadsToSame, type Dropped } from "../protocol/overlay/change.ts";

/** A step of applying a table. */
export type TableStep =
  | { readonly kind: "close"; readonly key: string }
  | { readonly kind: "drop-service"; readonly name: string }
  | { readonly kind: "set-service"; readonly service: OverlayService; readonly dropsFlows: boolean }
  | { readonly kind: "change"; readonly from: string; readonly listener: OverlayListener; readonly drops: Dropped }
  | { readonly kind: "open"; readonly listener: OverlayListener };

/** A table without services and listeners. */
export const EMPTY_TABLE: OverlayTable = { format: 1, version: 1, services: [], listeners: [] };

/**
 * Returns the ordered steps from one table to the next. A step that frees a port or a name precedes the step that needs
 * it. Pure.
 */
export function planTable(current: OverlayTable, next: OverlayTable): readonly TableStep[] {
  const { closed, changed, opened } = matchListeners(current.listeners, next.listeners);
  return [
    ...closed.map(({ key }) => ({ kind: "close", key }) as const),
    ...planServices(current.services, next.services),
    ...changed.flatMap(([from, to]) =>
      isSame(from, to) ? [] : [{ kind: "change", from: from.key, listener: to, drops: droppedBy(from, to) } as const],
    ),
    ...opened.map((listener) => ({ kind: "open", listener }) as const),
  ];
}

interface Match {
  readonly closed: readonly OverlayListener[];
  readonly changed: readonly (readonly [OverlayListener, OverlayListener])[];
  readonly opened: readonly OverlayListener[];
}

function matchListeners(current: readonly OverlayListener[], next: readonly OverlayListener[]): Match {
  const nextKeys = new Set(next.map(({ key }) => key));
  const byKey = new Map(current.map((listener) => [listener.key, listener]));
  const left = new Map(current.flatMap((one) => (nextKeys.has(one.key) ? [] : [[originOf(one), one] as const])));
  const changed: (readonly [OverlayListener, OverlayListener])[] = [];
  const opened: OverlayListener[] = [];
  for (const listener of next) {
    const before = byKey.get(listener.key) ?? left.get(originOf(listener));
    if (before === undefined) {
      opened.push(listener);
      continue;
    }
    changed.push([before, listener]);
    byKey.delete(before.key);
    if (left.get(originOf(before)) === before) left.delete(originOf(before));
  }
  return { closed: [...byKey.values()], changed, opened };
}

/** Identifies a listener whose bind addresses have changed. */
function originOf({ connector, protocol, port }: OverlayListener): string {
  return `${protocol} ${port} ${connector}`;
}

function planServices(current: readonly OverlayService[], next: readonly OverlayService[]): readonly TableStep[] {
  const before = new Map(current.map((service) => [service.name, service]));
  const names = new Set(next.map(({ name }) => name));
  const dropped = current.filter(({ name }) => !names.has(name));
  return [
    ...dropped.map(({ name }) => ({ kind: "drop-service", name }) as const),
    ...next.flatMap((service) => {
      const old = before.get(service.name);
      if (old !== undefined && isSame(old, service)) return [];
      const dropsFlows = old !== undefined && !leadsToSame(old, service);
      return [{ kind: "set-service", service, dropsFlows } as const];
    }),
  ];
}

/** Parsed values have their fields in schema order, so equal values have equal text. */
function isSame(a: unknown, b: unknown): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}
