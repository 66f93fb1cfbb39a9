import { isDeepStrictEqual } from "node:util";
import type { OverlayService, ServiceHealth } from "../../../protocol/overlay/overlay.ts";
import type { Issue } from "../../../protocol/documents/reconcile.ts";
import { applicationOf } from "../../../protocol/sections/common/fields.ts";
import type { Service } from "../../../protocol/sections/services/services.ts";
import { defined } from "../../../lib/defined.ts";

/** The overlay's services, and this machine's IPv4 addresses by link, its primary one first. */
export interface ServicesActual {
  readonly services: ReadonlyMap<string, OverlayService>;
  readonly health: ReadonlyMap<string, ServiceHealth>;
  readonly addresses: ReadonlyMap<string, readonly string[]>;
}

export type ServiceStep =
  | {
      readonly kind: "offer" | "change";
      readonly subject: string;
      readonly guarded: false;
      readonly service: OverlayService;
    }
  | {
      readonly kind: "withdraw";
      readonly subject: string;
      readonly guarded: false;
      readonly removes: true;
      readonly name: string;
    };

/** Plans the services to withdraw, change and offer. */
export function planServices(desired: readonly Service[], actual: ServicesActual): readonly ServiceStep[] {
  const offered = desired.filter(isOffered);
  const names = new Set(offered.map(({ name }) => name));
  const gone = [...actual.services.keys()].filter((name) => !names.has(name));
  return [
    ...gone.map((name) => ({ kind: "withdraw", subject: name, guarded: false, removes: true, name }) as const),
    ...offered.flatMap((desired): ServiceStep[] => {
      const service = compileService(desired, actual.addresses);
      const before = actual.services.get(service.name);
      if (before !== undefined && isDeepStrictEqual(before, service)) return [];
      return [{ kind: before === undefined ? "offer" : "change", subject: desired.id, guarded: false, service }];
    }),
  ];
}

/** Returns the overlay's entry for a service. */
function compileService(service: Service, addresses: ServicesActual["addresses"]): OverlayService {
  const { name, transport, host, port, sourceInterface, connectTimeoutMs, idleTimeoutMs, healthCheck } = service;
  const sourceAddress = sourceInterface === undefined ? undefined : addresses.get(sourceInterface)?.[0];
  const application = applicationOf(service.protocol);
  const lacksSource = sourceInterface !== undefined && sourceAddress === undefined;
  return {
    name,
    protocol: transport,
    ...defined({ application }),
    host,
    port,
    ...defined({ sourceAddress }),
    ...(lacksSource ? { lacksSource } : {}),
    connectTimeoutMs,
    idleTimeoutMs,
    ...defined({ healthCheck }),
  };
}

/** Lists services that no flow can reach: the target is down, or the source interface has no address. */
export function waitingServices(
  desired: readonly Service[],
  { services, health, addresses }: ServicesActual,
): readonly Issue[] {
  return desired.filter(isOffered).flatMap(({ name, path, host, port, sourceInterface }): Issue[] => {
    if (sourceInterface !== undefined && addresses.get(sourceInterface)?.[0] === undefined) {
      const at = `${path}.sourceInterface`;
      return [{ path: at, code: "address-absent", message: `${at}: ${sourceInterface} has no IPv4 address` }];
    }
    const judged = services.get(name);
    // Health of an earlier target does not apply to this one.
    const isOfAnother = judged !== undefined && (judged.host !== host || judged.port !== port);
    if (isOfAnother || health.get(name)?.state !== "down") return [];
    return [{ path, code: "service-down", message: `${path}: ${host}:${port} does not answer` }];
  });
}

/** Returns the paths of services whose health is not known yet, as after a restart of the overlay. */
export function unjudgedServices(desired: readonly Service[], { health }: ServicesActual): readonly string[] {
  const judged = desired.filter((service) => isOffered(service) && service.healthCheck !== undefined);
  return judged.filter(({ name }) => (health.get(name)?.state ?? "unknown") === "unknown").map(({ path }) => path);
}

const isOffered = ({ enabled }: Service): boolean => enabled;
