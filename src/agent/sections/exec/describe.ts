import type { ExecActual } from "./actual.ts";
import type { ExecStep } from "./plan.ts";

/** Describes a step to an operator: the container, what changes, and whether it stops. Pure. */
export function describeExecStep(step: ExecStep, { seen }: ExecActual): string {
  if ("detail" in step) return step.detail;
  if ("limits" in step) return "limits all containers together";
  if ("volumes" in step) {
    if (step.kind === "create volume") return `volume ${step.subject}: creates its directory`;
    return step.kind === "check volumes"
      ? "checks the volumes"
      : `volume ${step.subject}: moves to quarantine for a day`;
  }
  if ("tampered" in step) return describeRestoring(step);
  if (!("wanted" in step)) {
    if (step.kind === "suspend") return `${step.name}: stops, and nothing is removed`;
    return `${step.name}: stops and removes the container; its volumes stay`;
  }
  const { spec, blueprint } = step.wanted;
  const image = blueprint?.image.reference ?? `${spec.image.repository}:${spec.image.tag}`;
  switch (step.kind) {
    case "create":
      return `${spec.name} from ${image}`;
    case "replace": {
      const before = seen.works.get(spec.id)?.container?.image;
      const change = before === undefined || before === image ? image : `${before} → ${image}`;
      return `${spec.name}: ${change}; stops once its successor is ready to start`;
    }
    case "start":
      return `${spec.name} from ${image}, as it is`;
    case "stop":
      return `${spec.name}: stops`;
    case "update":
      return `${spec.name}: changes limits; it continues`;
    case "adopt":
      return `${spec.name}: runs already, and is unchanged`;
    case "define":
      return spec.execType === "service" ? `${spec.name}: nothing starts now` : `${spec.name}: runs when it is due`;
  }
}

function describeRestoring({ kind, name, tampered }: Extract<ExecStep, { tampered: unknown }>): string {
  const { fields, attachment } = tampered;
  if (kind === "restore settings") return `${name}: restores ${fields.join(", ")}, changed at the container engine`;
  const own = {
    "as-made": "",
    otherwise: ", where its settings differ",
    off: ", from which it was disconnected",
  } as const;
  const foreign = attachment?.foreign ?? [];
  const besides = foreign.length === 0 ? "" : `, and disconnects it from ${foreign.join(", ")}`;
  return `${name}: reconnects it to its network${own[attachment?.own ?? "as-made"]}${besides}`;
}
