import type { Compute } from "../../containers/model/compute.ts";
import { openCompute, type OpenComputeOptions, type OpenedCompute } from "./compute.ts";
import { openContainersView, type ContainersView, type OpenContainersViewOptions } from "./view.ts";

type Options = OpenComputeOptions & Omit<OpenContainersViewOptions, "compute">;

/** Everything of containers: `computing` runs them, `view` tells of them; the view is closed first. */
export interface Containers {
  readonly computing: OpenedCompute;
  readonly view: ContainersView;
}

/** Builds it; `compute` stands in for what moves them. */
export function openContainers(options: Options & { readonly compute?: Compute | undefined }): Containers {
  const computing = openCompute(options);
  return { computing, view: openContainersView({ ...options, compute: options.compute ?? computing.compute }) };
}
