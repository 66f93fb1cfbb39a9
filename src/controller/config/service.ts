import { InputError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import type { ConfirmRequest } from "../../protocol/values/commit.ts";
import type { Config } from "../../protocol/documents/documents.ts";
import { sectionOwners, sectionSuits, type SectionName } from "../../protocol/sections/sections.ts";
import type { JsonObject } from "../../protocol/values/values.ts";
import type { ClusterRecord } from "../clusters/records.ts";
import type { ClusterService } from "../clusters/service.ts";
import type { NodeRecord } from "../nodes/records.ts";
import type { NodeService } from "../nodes/service.ts";
import { checkSection } from "./checks.ts";

export interface ConfigServiceDeps {
  readonly nodes: Pick<NodeService, "stored" | "change">;
  readonly clusters: Pick<ClusterService, "stored" | "change">;
  readonly clock: Clock;
}

/** Sections of the desired configuration. Changes throw `InputError`: `not-found`, `invalid-body`, `not-supported`. */
export class ConfigService {
  readonly #deps: ConfigServiceDeps;

  constructor(deps: ConfigServiceDeps) {
    this.#deps = deps;
  }

  /** Replaces a section of a node; undefined removes it. `summary` describes the change in the event, without secrets. */
  setSection(
    uid: string,
    section: SectionName,
    body: JsonObject | undefined,
    user: string,
    confirm?: Omit<ConfirmRequest, "askedAt">,
    summary?: string,
  ): NodeRecord {
    const { nodes, clock } = this.#deps;
    const node = nodes.stored(uid);
    if (!sectionSuits(section, node.type)) {
      throw new InputError("not-supported", `${section} does not exist on nodes of type ${node.type}`);
    }
    const config = withSection(node.config, section, body);
    const confirmation = confirm === undefined ? {} : { confirm: { ...confirm, askedAt: Math.round(clock.now()) } };
    const trial = confirm?.tryMinutes === undefined ? "" : `, trial of ${confirm.tryMinutes} minutes`;
    const message = `Configuration of ${section} ${verbOf(body)}${trial}${summary === undefined ? "" : `: ${summary}`}`;
    return nodes.change(node, { config, ...confirmation }, user, message);
  }

  /** Replaces a section that members inherit; undefined removes it. */
  setClusterSection(fqdn: string, section: SectionName, body: JsonObject | undefined, user: string): ClusterRecord {
    const { clusters } = this.#deps;
    const cluster = clusters.stored(fqdn);
    if (!sectionOwners[section].clusters) throw new InputError("not-supported", `clusters have no ${section} section`);
    const config = withSection(cluster.config, section, body);
    const message = `Configuration of ${section} of cluster ${fqdn} ${verbOf(body)}`;
    return clusters.change(cluster, { config }, user, message);
  }
}

/** Returns a configuration with one section replaced, or removed. @throws {InputError} `invalid-body` */
function withSection(config: Config, section: SectionName, body: JsonObject | undefined): Config {
  if (body !== undefined) checkSection(section, body);
  const { [section]: _replaced, ...others } = config;
  return body === undefined ? others : { ...others, [section]: body };
}

const verbOf = (body: JsonObject | undefined): string => (body === undefined ? "removed" : "changed");
