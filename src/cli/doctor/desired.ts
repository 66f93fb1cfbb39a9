import { formatMoment } from "../../lib/text/durations.ts";
import type { LeftDocument } from "../../protocol/local/left-state.ts";
import type { Status } from "../../protocol/local/answers.ts";
import type { WhyReport } from "../../protocol/documents/reconcile.ts";
import { pass, skip, warn, type Check } from "./result.ts";
import type { CheckFamily } from "./tools.ts";

/** Maximum number of shown reasons. */
const MAX_REASONS = 50;

export const desiredChecks: CheckFamily = {
  name: "configuration",
  async run({ agent, left, clock }) {
    const [{ status, why }, onDisk] = await Promise.all([agent(), left()]);
    const documents =
      status === undefined ? leftDocumentChecks(onDisk.documents, clock.now()) : documentChecks(status, clock.now());
    return [
      ...documents,
      ...(status === undefined ? [skip("sections", "no-agent", "no agent reports them")] : sectionChecks(status, why)),
      pendingCheck(onDisk.hasPendingChange, status),
    ];
  },
};

/** Judges version and age of each document. Pure. */
export function documentChecks({ documents, node }: Pick<Status, "documents" | "node">, now: number): readonly Check[] {
  const known = Object.entries(documents);
  if (node !== null && documents.node === undefined) {
    return [warn("document.node", "no-document", "no configuration was received yet", "see that the node is online")];
  }
  if (known.length === 0) return [skip("documents", "not-registered", "there are none before the node is registered")];
  return known.map(([name, { version, receivedAt, appliedAt, refused }]) => {
    const at = `document.${name}`;
    const came = receivedAt === undefined ? "" : `, received ${formatMoment(receivedAt, now)}`;
    if (refused !== undefined) {
      const fix = "correct it at the control plane: the next version ends this";
      return warn(at, "refused-version", `version ${refused} was rolled back, ${version} is applied${came}`, fix);
    }
    if (name !== "keys" && appliedAt === undefined) {
      return warn(
        at,
        "not-applied",
        `version ${version}${came}, and not applied yet`,
        "'holdfast why' says what it waits for",
      );
    }
    const applied = appliedAt === undefined ? "" : `, applied ${formatMoment(appliedAt, now)}`;
    return pass(at, `version ${version}${came}${applied}`);
  });
}

/** Judges the documents on disk, without an agent. */
function leftDocumentChecks(documents: readonly LeftDocument[], now: number): readonly Check[] {
  if (documents.length === 0) return [skip("documents", "absent", "none can be read in the state directory")];
  return documents.map(({ name, version, receivedAt }) =>
    pass(`document.${name}`, `version ${version} on disk, received ${formatMoment(receivedAt, now)}`),
  );
}

/** Judges whether each section is applied as desired. Pure. */
export function sectionChecks({ sections }: Pick<Status, "sections">, why: WhyReport | undefined): readonly Check[] {
  const open = Object.entries(sections).filter(([, { state }]) => state !== "converged" && state !== "unsupported");
  const reasons = (why?.reasons ?? []).filter(({ notice }) => notice !== true);
  const named = reasons.slice(0, MAX_REASONS).map(({ section, item, code, message }) => {
    const name = `section.${item ?? section}`.slice(0, 300);
    return warn(
      name,
      code,
      message.slice(0, 4096),
      "'holdfast why' shows when it is tried again; correct it at the control plane or here",
    );
  });
  const silent = open.filter(([section]) => !reasons.some((reason) => reason.section === section));
  const unexplained = silent.map(([section, { state, issues }]) =>
    warn(`section.${section}`, state, issues[0] ?? `it is ${state}`, "'holdfast why' and the agent's log say more"),
  );
  const more = reasons.length - named.length;
  const rest = more > 0 ? [warn("sections", "more", `and ${more} more`, "'holdfast why' shows all")] : [];
  const wrong = [...named, ...unexplained, ...rest];
  return wrong.length > 0 ? wrong : [pass("sections", "every section is applied as desired")];
}

/** Judges a pending network change. Pure. */
export function pendingCheck(isOnDisk: boolean | undefined, status: Pick<Status, "pendingChange"> | undefined): Check {
  const name = "pending-change";
  if (status?.pendingChange !== undefined || (isOnDisk === true && status !== undefined)) {
    return warn(name, "change-pending", "a network change is pending", "'holdfast network' shows its state");
  }
  if (isOnDisk === undefined && status === undefined) return skip(name, "access-denied", "only root can see it");
  if (isOnDisk !== true) return pass(name, "no change of the network is pending");
  return warn(
    name,
    "change-pending",
    "a network change is neither proven nor reverted",
    "'holdfast guard restore' reverts it",
  );
}
