import { sectionNames, sectionSuits, type SectionName } from "../../protocol/sections.ts";
import type { DocumentApplied, SectionReport } from "../../protocol/methods.ts";
import type { Config } from "../../protocol/documents.ts";
import type { NodeType } from "../../protocol/values.ts";
import type { Desired, Held } from "./desired.ts";

/** What one document came to, before it is stamped with times. */
export type Verdict = Pick<DocumentApplied, "outcome" | "sections">;

/** What each document in force comes to on this node. Pure. */
export function judgeDocuments(desired: Desired): Readonly<Partial<Record<DocumentApplied["name"], Verdict>>> {
  const type = desired.node?.body.type ?? "Node";
  return {
    ...(desired.node === undefined ? {} : { node: verdictOf(desired.node, desired.node.body.config, type) }),
    ...(desired.cluster === undefined
      ? {}
      : { cluster: verdictOf(desired.cluster, desired.cluster.body.config, type) }),
    ...(desired.domain === undefined ? {} : { domain: verdictOf(desired.domain, {}, type) }),
  };
}

function verdictOf({ passedOver }: Held<unknown>, config: Config, type: NodeType): Verdict {
  const present = sectionNames.filter((name) => config[name] !== undefined);
  const sections = Object.fromEntries(present.map((name) => [name, sectionReport(name, type)]));
  return { outcome: present.length + passedOver.length === 0 ? "converged" : "partial", sections };
}

function sectionReport(name: SectionName, type: NodeType): SectionReport {
  const reason = sectionSuits(name, type)
    ? `${name}: this version of the node does not apply the section`
    : `${name}: not a section of an agent`;
  return { state: "unsupported", issues: [reason], steps: 0 };
}
