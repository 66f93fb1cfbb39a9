import { InputError } from "../../../errors.ts";
import { ContainerLogs } from "../../../protocol/triggers/bodies.ts";
import type { Compute } from "../../containers/model/compute.ts";
import { decodeOutput } from "../../containers/output/decode-output.ts";
import type { StreamTrigger } from "../execution/trigger.ts";

/** Streams the output of a container's current run; a caller that waits gets the output so far. */
export function containerLogs(compute: () => Pick<Compute, "logs"> | undefined): StreamTrigger<ContainerLogs> {
  return {
    event: "container-logs",
    kind: "stream",
    request: ContainerLogs,
    deadlineMs: 60_000,
    needsDataPlane: false,
    readOnly: true,
    agents: false,
    async handle({ container, follow, lines }, { emit, signal, wait }) {
      const there = compute();
      if (there === undefined) throw new InputError("not-configured", "no container is configured on this node");
      const frames = there.logs(container, { follow: follow && !wait, lines }, signal);
      for await (const { stream, data } of decodeOutput(frames)) await emit({ kind: stream, data });
      return { exitCode: 0 };
    },
  };
}
