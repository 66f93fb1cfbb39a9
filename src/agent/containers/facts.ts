import type { ShadowMap } from "../../protocol/values/shadow.ts";
import { WIRE_STATES, type ContainerStatus } from "./model/compute.ts";

const MAX_CONTAINERS = 256;
/** Limit of containers in the shadow, whose size is bounded. */
const MAX_BYTES = 16 * 1024;

/** Returns a few shadow keys per container; `container.more` counts those beyond the limit. Pure. */
export function containerFacts(containers: readonly ContainerStatus[]): ShadowMap {
  const facts: ShadowMap = {};
  let bytes = 0;
  let left = containers.length;
  for (const { name, state, health, restarts } of containers.slice(0, MAX_CONTAINERS)) {
    const own: ShadowMap = {
      [`container.${name}.state`]: WIRE_STATES[state],
      ...(health === undefined ? {} : { [`container.${name}.health`]: health }),
      ...(restarts === 0 ? {} : { [`container.${name}.restarts`]: restarts }),
    };
    bytes += JSON.stringify(own).length;
    if (bytes > MAX_BYTES) break;
    Object.assign(facts, own);
    left -= 1;
  }
  return { ...facts, ...(left === 0 ? {} : { "container.more": left }) };
}
