import type { Overlay } from "../../../host/overlay.ts";
import { normaliseServices, type Service } from "../../../protocol/sections/services.ts";
import type { Section } from "../../reconcile/section.ts";
import { describeServiceStep } from "./plan-detail.ts";
import { planServices, waitingServices, type ServicesActual, type ServiceStep } from "./plan.ts";

export interface ServicesOptions {
  readonly overlay: Pick<Overlay, "observe" | "change">;
  /** This machine's IPv4 addresses by link. */
  readonly addresses: () => ReadonlyMap<string, readonly string[]>;
  /** Whether the node is a member of a cluster. */
  readonly isMember: () => boolean;
}

/** `services`: what connectors and port forwards can reach from this node, by name. */
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
      const { items, rejected, notices } = normaliseServices(raw, { isMember: isMember() });
      return { desired: items, rejected: [...rejected, ...notices], isUnusable: isNothingUsable(items, rejected) };
    },
    async observe(signal) {
      const { services, health } = await overlay.observe(signal);
      return { services, health, addresses: addresses() };
    },
    plan: planServices,
    describe: describeServiceStep,
    undo: () => undefined,
    apply: (step, signal) => applyAll([step], signal),
    applyAll,
    waits: waitingServices,
    report: ({ services, health }) => ({
      services: services.size,
      down: [...health.values()].filter(({ state }) => state === "down").length,
    }),
  };
}

/** Whether the section itself, rather than each of its items, is wrong: then what is there stays. */
function isNothingUsable(items: readonly Service[], rejected: readonly { readonly id: string }[]): boolean {
  return items.length === 0 && rejected.some(({ id }) => id === "");
}
