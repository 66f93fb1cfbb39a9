import { isDeepStrictEqual } from "node:util";
import type { OverlayService } from "../../../protocol/overlay/overlay.ts";
import { leadsToSame } from "../../../protocol/overlay/change.ts";
import type { ServicesActual, ServiceStep } from "./plan.ts";

const ENDS = ", ends its flows";

/** Describes a step to an operator: the service, its target, what changes, and whether flows end. Pure. */
export function describeServiceStep(step: ServiceStep, { services }: ServicesActual): string {
  if (step.kind === "withdraw") {
    const before = services.get(step.name);
    return `${step.name}${before === undefined ? "" : ` at ${targetOf(before)}`}${ENDS}`;
  }
  const { service } = step;
  const before = services.get(service.name);
  if (before === undefined) return `${service.name} at ${targetOf(service)}`;
  return `${service.name}: ${changes(before, service).join(", ")}${leadsToSame(before, service) ? "" : ENDS}`;
}

function targetOf({ protocol, application, host, port }: OverlayService): string {
  return `${application ?? protocol} ${host.includes(":") ? `[${host}]` : host}:${port}`;
}

function changes(from: OverlayService, to: OverlayService): readonly string[] {
  const shown: readonly (readonly [string, (service: OverlayService) => string])[] = [
    ["target", targetOf],
    ["leaves from", ({ sourceAddress, lacksSource }) => sourceAddress ?? (lacksSource === true ? "nowhere" : "any")],
    ["connectTimeout", ({ connectTimeoutMs }) => `${connectTimeoutMs / 1000} s`],
    ["idleTimeout", ({ idleTimeoutMs }) => `${idleTimeoutMs / 1000} s`],
  ];
  const texts = shown.flatMap(([name, text]) =>
    text(from) === text(to) ? [] : [`${name} ${text(from)} → ${text(to)}`],
  );
  return isDeepStrictEqual(from.healthCheck, to.healthCheck) ? texts : [...texts, "healthCheck"];
}
