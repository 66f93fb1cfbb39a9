import type { Clock } from "../host/clock.ts";
import type { OverlayService, ServiceHealth } from "../protocol/overlay/overlay.ts";
import type { Dialer } from "./dial/dial.ts";

/** Checks by TCP connects whether services answer. */
export interface HealthChecks {
  /** Replaces the set of services; an unchanged service keeps its state. */
  watch(services: readonly OverlayService[]): void;
  isDown(name: string): boolean;
  list(): readonly ServiceHealth[];
  close(): void;
}

/** Health of a service; `contrary` counts consecutive checks that contradict the state. */
export interface Health {
  readonly state: ServiceHealth["state"];
  readonly contrary: number;
}

type Rules = NonNullable<OverlayService["healthCheck"]>;

interface Watched {
  readonly service: OverlayService;
  health: Health;
  since: number;
  cancel: () => void;
}

/**
 * Returns the health after one check. A service is up with its first success; otherwise the state changes after as many
 * consecutive results as its rules require. Pure.
 */
export function judge(health: Health, isAlive: boolean, { failures, successes }: Rules): Health {
  const found = isAlive ? "up" : "down";
  if (health.state === found) return { state: found, contrary: 0 };
  const contrary = health.contrary + 1;
  const needed = health.state === "unknown" && isAlive ? 1 : isAlive ? successes : failures;
  return contrary >= needed ? { state: found, contrary: 0 } : { state: health.state, contrary };
}

export function healthChecks(
  clock: Clock,
  dialer: Dialer,
  onChange: (changed: readonly ServiceHealth[]) => void,
): HealthChecks {
  const watched = new Map<string, Watched>();

  const check = (entry: Watched, rules: Rules): void => {
    const { name: label, host, port, sourceAddress, connectTimeoutMs } = entry.service;
    let isDone = false;
    const done = (isAlive: boolean): void => {
      isDone = true;
      const before = entry.health.state;
      entry.health = judge(entry.health, isAlive, rules);
      entry.cancel = clock.after(rules.intervalMs, () => check(entry, rules));
      if (entry.health.state === before) return;
      entry.since = clock.now();
      onChange([reportOf(entry)]);
    };
    const dial = dialer.dial(
      { label, host, port, sourceAddress, connectTimeoutMs },
      {
        connected(socket) {
          socket.on("error", () => undefined).resetAndDestroy();
          done(true);
        },
        failed: () => done(false),
      },
    );
    if (!isDone) entry.cancel = () => dial.cancel();
  };

  return {
    watch(services) {
      const next = new Map(services.map((service) => [service.name, service]));
      for (const [name, entry] of watched) {
        if (JSON.stringify(next.get(name)) === JSON.stringify(entry.service)) continue;
        entry.cancel();
        watched.delete(name);
      }
      for (const service of services) {
        if (service.healthCheck === undefined || service.protocol !== "tcp" || watched.has(service.name)) continue;
        const health: Health = { state: "unknown", contrary: 0 };
        const entry: Watched = { service, health, since: clock.now(), cancel: () => undefined };
        watched.set(service.name, entry);
        check(entry, service.healthCheck);
      }
    },
    isDown: (name) => watched.get(name)?.health.state === "down",
    list: () => [...watched.values()].map(reportOf),
    close() {
      for (const entry of watched.values()) entry.cancel();
      watched.clear();
    },
  };
}

function reportOf({ service, health, since }: Watched): ServiceHealth {
  return { name: service.name, state: health.state, since };
}
