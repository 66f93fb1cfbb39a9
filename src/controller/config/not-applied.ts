import { alertNotices } from "../../protocol/sections/alert/alert.ts";
import type { ConfigIssue } from "../../protocol/sections/common/issue.ts";
import { relevantNotices } from "../../protocol/sections/common/items.ts";
import { normaliseConnectors } from "../../protocol/sections/connectors/connectors.ts";
import { normaliseGateway } from "../../protocol/sections/gateway/gateway.ts";
import { readNetwork } from "../../protocol/sections/network/read.ts";
import { appliedSections, type SectionName } from "../../protocol/sections/sections.ts";
import { normaliseServices } from "../../protocol/sections/services/services.ts";
import type { NodeRecord } from "../nodes/records.ts";

/** Response header of a write that is stored and not applied as written. */
export const WARNING_HEADER = "holdfast-warning";
const MAX_ISSUES = 16;
const MAX_CHARS = 4000;

/**
 * Sets the header with the reasons for which the stored section is not applied, or not as written, as far as the controller knows.
 * `concerns` limits them to some issues.
 */
export function warnOf(
  response: Response,
  section: SectionName,
  node: NodeRecord,
  concerns: (issue: ConfigIssue) => boolean = () => true,
): Response {
  const whole = notApplied(section, node);
  // A section that no node applies can have issues, too.
  const isJudged = whole === undefined || !appliedSections.has(section);
  const found = isJudged ? issuesOf(section, node).filter(concerns) : [];
  const more = found.length > MAX_ISSUES ? [`and ${found.length - MAX_ISSUES} more`] : [];
  const reasons = [
    ...(whole === undefined ? [] : [whole]),
    ...found.slice(0, MAX_ISSUES).map(({ message }) => message),
  ];
  const text = [...reasons, ...more].join("; ").slice(0, MAX_CHARS);
  // A header has visible ASCII only (RFC 9110 §5.5).
  if (text !== "") response.headers.set(WARNING_HEADER, text.replaceAll(/[^\u0020-\u007e]/g, "?"));
  return response;
}

/** Returns why no node of this version applies a section; undefined if one does. Pure. */
export function unsupportedReason(section: SectionName): string | undefined {
  if (appliedSections.has(section)) return undefined;
  return `section ${section} is stored but not applied: this version does not support it`;
}

/** Returns why nothing of a section is applied; undefined if it is, as far as known. Pure. */
function notApplied(section: SectionName, { applied, unauthorizedIp, config }: NodeRecord): string | undefined {
  if (config[section] === undefined) return undefined;
  const unsupported = unsupportedReason(section);
  if (unsupported !== undefined) return unsupported;
  if (applied.node?.sections[section]?.state === "unsupported")
    return `section ${section} is stored but not applied: the node reports it as unsupported`;
  if (unauthorizedIp === undefined || section === "network") return undefined;
  return `section ${section} is stored but not applied: the node connects from ${unauthorizedIp}, outside its lock`;
}

/** Returns the issues of a node's stored section: items that it rejects, and values that it applies otherwise than written. Pure. */
function issuesOf(section: SectionName, { type: nodeType, cluster, config }: NodeRecord): readonly ConfigIssue[] {
  const body = config[section];
  switch (section) {
    case "connectors": {
      const read = normaliseConnectors(body, { nodeType });
      return [...read.rejected, ...relevantNotices(read)];
    }
    case "services": {
      const read = normaliseServices(body, { isMember: cluster !== undefined });
      return [...read.rejected, ...relevantNotices(read)];
    }
    case "network": {
      const { rejected, notices } = readNetwork(body, { nodeType, isMember: cluster !== undefined });
      return [...rejected, ...notices];
    }
    case "gateway": {
      const { rejected, notices } = normaliseGateway(body, { nodeType });
      return [...rejected, ...notices];
    }
    case "alert":
      return alertNotices(body);
    default:
      return [];
  }
}
