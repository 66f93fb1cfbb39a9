import { InputError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import type { ConfirmRequest } from "../../protocol/values/commit.ts";
import type { Config } from "../../protocol/documents/documents.ts";
import { sectionOwners, sectionSuits, type SectionName } from "../../protocol/sections/sections.ts";
import type { JsonObject } from "../../protocol/values/values.ts";
import type { ClusterRecord } from "../clusters/records.ts";
import type { ClusterService } from "../clusters/service.ts";
import type { NodeRecord } from "../nodes/records.ts";
import type { NodeParts, NodeService } from "../nodes/service.ts";
import type { StoredNode } from "../nodes/store.ts";
import { checkSection } from "./checks.ts";

export interface ConfigServiceDeps {
  readonly nodes: Pick<NodeService, "change">;
  readonly clusters: Pick<ClusterService, "change">;
  readonly clock: Clock;
}

/** A new body of a section; undefined removes it. */
export interface SectionChange {
  readonly body: JsonObject | undefined;
  /** Confirmation that the node waits for. */
  readonly confirm?: Omit<ConfirmRequest, "askedAt"> | undefined;
  /** Describes the change in the event, without secrets. */
  readonly summary?: string;
}

/** Sections of the desired configuration. Changes reject with `InputError`: `not-found`, `invalid-body`, `not-supported`. */
export class ConfigService {
  readonly #deps: ConfigServiceDeps;

  constructor(deps: ConfigServiceDeps) {
    this.#deps = deps;
  }

  /** Changes a section of a node, as `decide` makes it of the stored node and may refuse by throwing; it may run again. */
  setSection(
    uid: string,
    section: SectionName,
    user: string,
    decide: (node: StoredNode, tx: Pick<NodeParts, "nodes">) => SectionChange | Promise<SectionChange>,
  ): Promise<NodeRecord> {
    const { nodes, clock } = this.#deps;
    return nodes.change(uid, user, async (node, tx) => {
      const { body, confirm, summary } = await decide(node, tx);
      if (!sectionSuits(section, node.type)) {
        throw new InputError("not-supported", `${section} does not exist on nodes of type ${node.type}`);
      }
      const config = withSection(node.config, section, body);
      const confirmation = confirm === undefined ? {} : { confirm: { ...confirm, askedAt: Math.round(clock.now()) } };
      const trial = confirm?.tryMinutes === undefined ? "" : `, trial of ${confirm.tryMinutes} minutes`;
      const message = `Configuration of ${section} ${verbOf(body)}${trial}${summary === undefined ? "" : `: ${summary}`}`;
      return { change: { config, ...confirmation }, message };
    });
  }

  /** Changes a section that members inherit, as `decide` makes it of the stored cluster; undefined removes it. */
  setClusterSection(
    fqdn: string,
    section: SectionName,
    user: string,
    decide: (cluster: ClusterRecord) => JsonObject | undefined,
  ): Promise<ClusterRecord> {
    return this.#deps.clusters.change(fqdn, user, (cluster) => {
      if (!sectionOwners[section].clusters)
        throw new InputError("not-supported", `clusters have no ${section} section`);
      const body = decide(cluster);
      const message = `Configuration of ${section} of cluster ${fqdn} ${verbOf(body)}`;
      return { config: withSection(cluster.config, section, body), message };
    });
  }
}

/** Returns a configuration with one section replaced, or removed. @throws {InputError} `invalid-body` */
function withSection(config: Config, section: SectionName, body: JsonObject | undefined): Config {
  if (body !== undefined) checkSection(section, body);
  const { [section]: _replaced, ...others } = config;
  return body === undefined ? others : { ...others, [section]: body };
}

const verbOf = (body: JsonObject | undefined): string => (body === undefined ? "removed" : "changed");
