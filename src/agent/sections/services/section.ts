import type { Overlay } from "../../../host/overlay/client.ts";
import { normaliseServices, type Service } from "../../../protocol/sections/services/services.ts";
import { relevantNotices } from "../../../protocol/sections/common/items.ts";
import type { Section } from "../../reconcile/section.ts";
import { describeServiceStep } from "./describe.ts";
import { planServices, unjudgedServices, waitingServices, type ServicesActual, type ServiceStep } from "./plan.ts";

export interface ServicesOptions {
  readonly overlay: Pick<Overlay, "observe" | "change">;
  /** This machine's IPv4 addresses by link. */
  readonly addresses: () => ReadonlyMap<string, readonly string[]>;
  /** True if the node is a member of a cluster. */
  readonly isMember: () => boolean;
}

/** `services`: named targets that connectors and port forwards reach from this node. */
export function servicesSection(options: ServicesOptions): Section<readonly Service[], ServicesActual, ServiceStep> {
  const { overlay, addresses, isMember } = options;
  const applyAll = (steps: readonly ServiceStep[], signal: AbortSignal): Promise<void> => {
    const put = steps.flatMap((step) => (step.kind === "withdraw" ? [] : [step.service]));
    const drop = steps.flatMap((step) => (step.kind === "withdraw" ? [step.name] : []));
    return overlay.change({ services: { put, drop } }, signal);
  };
  return {
    name: "services",
    needsDataPlane: true,
    parse(raw) {
      const normalised = normaliseServices(raw, { isMember: isMember() });
      const { items, rejected } = normalised;
      const isUnusable = isNothingUsable(items, rejected);
      return { desired: items, rejected, notices: relevantNotices(normalised), isUnusable };
    },
    async observe(signal) {
      const { services, health } = await overlay.observe(signal);
      return { services, health, addresses: addresses() };
    },
    plan: planServices,
    asSurrounded: (actual, { addresses }) => ({ ...actual, addresses }),
    describe: describeServiceStep,
    undo: () => undefined,
    apply: (step, signal) => applyAll([step], signal),
    applyAll,
    waits: waitingServices,
    undetermined: unjudgedServices,
    report: ({ services, health }) => ({
      services: services.size,
      down: [...health.values()].filter(({ state }) => state === "down").length,
    }),
  };
}

/** Reports whether the section itself is unusable; the applied services stay then. */
function isNothingUsable(items: readonly Service[], rejected: readonly { readonly id: string }[]): boolean {
  return items.length === 0 && rejected.some(({ id }) => id === "");
}
