import { secretRequests } from "../session/secret-requests.ts";
import type { Compute } from "../containers/model/compute.ts";
import type { AgentSignals } from "./signals.ts";
import { openCompute, type OpenComputeOptions, type OpenedCompute } from "./containers/compute.ts";
import { openContainersView, type ContainersView, type OpenContainersViewOptions } from "./containers/view.ts";

type Signalled = "config" | "registryToken" | "volumeKey" | "requestPass" | "onChanged";

export type OpenContainersOptions = Omit<OpenComputeOptions & OpenContainersViewOptions, "compute" | Signalled> & {
  readonly signals: Pick<AgentSignals, "registration" | "connection" | "config" | "surroundings" | "facts">;
  /** Replaces the containers of this node. */
  readonly compute?: Compute | undefined;
};

/** The containers of this node: `computing` runs them, `view` reports on them. */
export interface Containers {
  readonly computing: OpenedCompute;
  readonly view: ContainersView;
}

export function openContainers(options: OpenContainersOptions, stack: AsyncDisposableStack): Containers {
  const { signals } = options;
  const computing = openCompute({
    ...options,
    ...secretRequests(signals),
    config: () => signals.config.current,
    requestPass: () => signals.surroundings.set({ cause: "containers", sections: ["exec"] }),
  });
  stack.defer(() => computing.close());
  const compute = options.compute ?? computing.compute;
  const view = openContainersView({ ...options, compute, onChanged: () => signals.facts.set() });
  stack.defer(() => view.close());
  return { computing, view };
}
