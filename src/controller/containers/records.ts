import type { ContainerOutput } from "../../protocol/documents/telemetry.ts";

/** Search in the output of containers. */
export interface ContainerOutputSearch {
  /** Returns the latest `limit` records of a node, or of one container by id or name, oldest first; Unix seconds, both inclusive. */
  find(
    nodeId: string,
    filter: {
      readonly container: string | undefined;
      readonly from: number;
      readonly to: number;
      readonly limit: number;
    },
  ): Promise<readonly ContainerOutput[]>;
}

/** A requested terminal in a container, named as in the configuration. */
export interface TerminalRequest {
  readonly container: string;
  readonly cols: number;
  readonly rows: number;
  readonly user: string;
}
