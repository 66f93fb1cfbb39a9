import type { ServiceHealth } from "../../../protocol/overlay/overlay.ts";
import type { EventLog } from "../events.ts";

/** Raises events of services that health checks withdraw and offer again. */
export interface ServiceEvents {
  /** Takes the states of services; services that are not listed stay unchanged. */
  refresh(services: readonly ServiceHealth[]): void;
  /** Takes the states of all services with health checks; a service that is not listed is no longer withdrawn. */
  lookAtAll(services: readonly ServiceHealth[]): void;
}

const EVENT_TYPE = "Network Error";
const SERVICE = "service ";
/** All open events together are limited. */
const MAX_OPEN = 100;

export function serviceEvents(events: Pick<EventLog, "raise" | "clear" | "openEvents">): ServiceEvents {
  // Events of an earlier run are cleared by this one.
  const withdrawn = new Set(
    events
      .openEvents()
      .filter(({ eventType, object }) => eventType === EVENT_TYPE && object.startsWith(SERVICE))
      .map(({ object }) => object),
  );

  function clear(object: string, message: string): void {
    if (withdrawn.delete(object)) events.clear({ eventType: EVENT_TYPE, object, message });
  }

  function refresh(services: readonly ServiceHealth[]): void {
    for (const { name, state } of services) {
      const object = objectOf(name);
      if (state === "up") clear(object, `Service ${name} answers again`);
      if (state !== "down" || withdrawn.has(object) || withdrawn.size >= MAX_OPEN) continue;
      withdrawn.add(object);
      const message = `Service ${name} does not answer its health check and is withdrawn`;
      events.raise({ eventType: EVENT_TYPE, object, level: "WARNING", message });
    }
  }

  return {
    refresh,
    lookAtAll(services) {
      refresh(services);
      const judged = new Set(services.map(({ name }) => objectOf(name)));
      for (const object of withdrawn) if (!judged.has(object)) clear(object, `The ${object} is no longer checked`);
    },
  };
}

function objectOf(name: string): string {
  return `${SERVICE}${name}`.slice(0, 256);
}
