import { InputError } from "../../../errors.ts";
import { ContainerStatusRequest } from "../../../protocol/triggers/bodies.ts";
import { WIRE_STATES, type Compute, type ContainerStatus } from "../../containers/model/compute.ts";
import type { OneShotTrigger } from "../execution/trigger.ts";
import { defined } from "../../../lib/defined.ts";

/** Characters of short ids in the engine's own tools. */
const SHORT_ID = 12;

/** Returns the state of each container, or of one, by name. @throws {InputError} `not-found` */
export function containerStatus(
  compute: () => Pick<Compute, "containers"> | undefined,
): OneShotTrigger<ContainerStatusRequest> {
  return {
    event: "container-status",
    kind: "one-shot",
    request: ContainerStatusRequest,
    deadlineMs: 10_000,
    needsDataPlane: false,
    readOnly: true,
    agents: false,
    async handle({ container }) {
      const all = compute()?.containers() ?? [];
      const asked = container === undefined ? all : all.filter(({ name }) => name === container);
      if (container !== undefined && asked.length === 0)
        throw new InputError("not-found", `no container is called ${container}`, { details: { field: "container" } });
      return Object.fromEntries(asked.map(entryOf));
    },
  };
}

function entryOf({ name, state, image, imageId = "", health }: ContainerStatus): readonly [string, object] {
  const status = {
    status: WIRE_STATES[state],
    imageName: `${image.repository}/${image.tag}`,
    imageId: imageId.slice(imageId.indexOf(":") + 1).slice(0, SHORT_ID),
    ...defined({ health }),
  };
  return [name, status];
}
