import { isOwnName } from "../../protocol/documents/own-name.ts";
import { forbiddenTargets } from "../../protocol/sections/connectors/targets.ts";
import { normaliseConnectors } from "../../protocol/sections/connectors/connectors.ts";
import type { ConfigIssue } from "../../protocol/sections/common/issue.ts";
import type { SectionName } from "../../protocol/sections/sections.ts";
import type { JsonObject } from "../../protocol/values/values.ts";
import { Violations } from "../http/problem.ts";
import type { NodeRecord } from "../nodes/records.ts";

/** Rejects connectors to targets that no other node would serve; `pathOf` returns the field of an issue. @throws {Violations} */
export function checkTargets(
  section: SectionName,
  body: JsonObject,
  node: Pick<NodeRecord, "uid" | "name" | "fqdn" | "type">,
  pathOf: (issue: ConfigIssue) => string,
): void {
  if (section !== "connectors") return;
  const { items } = normaliseConnectors(body, { nodeType: node.type });
  const found = forbiddenTargets(items, (name) => isOwnName(node, name));
  if (found.length === 0) return;
  throw new Violations(found.map((issue) => `${pathOf(issue)}: ${issue.message.slice(issue.path.length + 2)}`));
}
