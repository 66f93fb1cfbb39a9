import { sectionNames, sectionSuits, type SectionName } from "../../protocol/sections/sections.ts";
import type { DocumentApplied, SectionReport } from "../../protocol/channel/methods.ts";
import type { Config } from "../../protocol/documents/documents.ts";
import type { NodeType } from "../../protocol/values/values.ts";
import type { Desired, Held } from "./desired.ts";
import type { Effective } from "./findings.ts";

/** The newest report of each document. */
export type AppliedReports = ReadonlyMap<DocumentApplied["name"], DocumentApplied>;

/** The result of one document, without times. */
export type Verdict = Pick<DocumentApplied, "outcome" | "sections" | "inForce" | "evidence">;
export type Verdicts = Readonly<Partial<Record<DocumentApplied["name"], Verdict>>>;
/** The result of an applied section. `notices` are reported with its issues, and do not make the document partial. */
export interface SectionAnswer extends SectionReport {
  readonly notices?: readonly string[];
}

/** Returns the result of each document on this node. Pure. */
export function judgeDocuments(
  desired: Desired,
  answers: ReadonlyMap<string, SectionAnswer>,
  { shadowed, errors }: Pick<Effective, "shadowed" | "errors">,
): Verdicts {
  const type = desired.node?.body.type ?? "Node";
  const config = { ...desired.cluster?.body.config, ...desired.node?.body.config };
  const unfinished = sectionNames.filter((name) => config[name] === undefined && isUnfinished(answers.get(name)));
  const verdictOf = (
    { passedOver, refused, version }: Held<unknown>,
    config: Config,
    notes: readonly Note[],
    others: readonly SectionName[],
  ): Verdict => {
    const present = sectionNames.filter((name) => config[name] !== undefined && !isIdle(name, config, type, answers));
    const known = [...present, ...others];
    const share = Math.floor(MAX_ISSUE_BYTES / Math.max(1, known.length));
    const judged = known.map((name) => [name, sectionAnswer(name, type, answers, notes)] as const);
    const sections = Object.fromEntries(
      judged.map(([name, { state, issues, notices = [], steps }]) => {
        const lines = [...issues, ...notices].slice(0, MAX_ISSUES);
        return [name, { state, issues: fitting(lines, share), steps }];
      }),
    );
    if (refused !== undefined) {
      const evidence = refused.why === undefined ? {} : { evidence: refused.why };
      return { outcome: "rolled-back", inForce: version, ...evidence, sections };
    }
    const isComplete = passedOver.length === 0;
    const isWhole = isComplete && judged.every(([, { state, issues }]) => state === "converged" && issues.length === 0);
    return { outcome: isWhole ? "converged" : "partial", sections };
  };
  const overridden = shadowed.map(({ path, by }) => ({ path, message: `${path}: the cluster's ${by} applies` }));
  return {
    ...(desired.node === undefined
      ? {}
      : { node: verdictOf(desired.node, desired.node.body.config, overridden, unfinished) }),
    ...(desired.cluster === undefined
      ? {}
      : { cluster: verdictOf(desired.cluster, desired.cluster.body.config, errors, []) }),
    ...(desired.domain === undefined ? {} : { domain: verdictOf(desired.domain, {}, [], []) }),
  };
}

/** Returns the non-empty sections of a configuration that suit the node and are stored but not applied. Pure. */
export function storedOnly(config: Config, type: NodeType, applied: Pick<ReadonlySet<string>, "has">): SectionName[] {
  return sectionNames.filter((name) => !applied.has(name) && sectionSuits(name, type) && !isEmpty(config[name]));
}

/** The reason for which a section is stored only. */
export const STORED_ONLY = "this version of the node does not apply the section";

/** Reports whether a section that is not applied asks for nothing, so that there is nothing to report. */
function isIdle(
  name: SectionName,
  config: Config,
  type: NodeType,
  answers: Pick<ReadonlyMap<string, SectionAnswer>, "has">,
): boolean {
  return !answers.has(name) && sectionSuits(name, type) && isEmpty(config[name]);
}

/** Reports whether a section holds no value at all. */
function isEmpty(value: unknown): boolean {
  if (value === undefined || value === null) return true;
  return typeof value === "object" && Object.values(value).every(isEmpty);
}

interface Note {
  readonly path: string;
  readonly message: string;
}

const MAX_ISSUES = 1000;
/** Limit of the issues of a whole document, so that they fit into one message. */
const MAX_ISSUE_BYTES = 256 * 1024;

function sectionAnswer(
  name: SectionName,
  type: NodeType,
  answers: ReadonlyMap<string, SectionAnswer>,
  notes: readonly Note[],
): SectionAnswer {
  const answer = answers.get(name);
  const own = notes.filter(({ path }) => path === name || path.startsWith(`${name}.`)).map(({ message }) => message);
  if (answer !== undefined && sectionSuits(name, type)) {
    return { ...answer, issues: [...answer.issues, ...own].slice(0, MAX_ISSUES) };
  }
  const reason = sectionSuits(name, type) ? STORED_ONLY : "not a section of an agent";
  return { state: "unsupported", issues: [`${name}: ${reason}`], steps: 0 };
}

/** Returns as many lines as fit, and the number of those left. */
function fitting(lines: readonly string[], maxBytes: number): string[] {
  let left = maxBytes;
  const cut = lines.findIndex((line) => {
    left -= Buffer.byteLength(JSON.stringify(line)) + 1;
    return left < 64;
  });
  return cut === -1 ? [...lines] : [...lines.slice(0, cut), `and ${lines.length - cut} more`];
}

/** Reports whether a section without a document still has something to remove from the machine. */
function isUnfinished(answer: SectionAnswer | undefined): boolean {
  return answer !== undefined && answer.state !== "converged";
}
