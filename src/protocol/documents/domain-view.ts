import { DomainGrant, DomainPeer } from "../sections/gateway/domain-items.ts";
import type { DomainDocument } from "./documents.ts";
import { firstIssueText } from "../values/issue-text.ts";
import type { Issue } from "./reconcile.ts";
import type { JsonObject } from "../values/values.ts";
import type { z } from "zod";

/** Items of a `domain` document. Invalid items become issues; the others are used. */
export interface DomainView {
  readonly fqdn: string;
  /** Nodes by uid. */
  readonly peers: ReadonlyMap<string, DomainPeer>;
  readonly grants: readonly DomainGrant[];
  readonly issues: readonly Issue[];
  /** Names of clusters that this node's sections contain. */
  readonly clusters: ReadonlySet<string>;
  /** Returns the peer whose name, FQDN or uid is exactly this. */
  find(name: string): DomainPeer | undefined;
}

/** Parses the applied document; a repeated one is taken from a cache. */
export type ReadDomain = (domain: DomainDocument | undefined) => DomainView | undefined;

/** Maximum number of reported invalid items. */
const MAX_ISSUES = 100;

/** Returns a reader that caches the view of each document object; documents must not be changed in place. */
export function domainReader(): ReadDomain {
  const known = new WeakMap<DomainDocument, DomainView>();
  return (domain) => {
    if (domain === undefined) return undefined;
    const before = known.get(domain);
    if (before !== undefined) return before;
    const view = readDomain(domain);
    known.set(domain, view);
    return view;
  };
}

/** Parses the items of a document, from which those with unknown required features are already removed. Pure. */
export function readDomain({ fqdn, peers, grants, clusters }: DomainDocument): DomainView {
  const foundPeers = readItems("peers", peers, DomainPeer);
  const foundGrants = readItems("grants", grants, DomainGrant);
  const byUid = new Map<string, DomainPeer>();
  const byName = new Map<string, DomainPeer>();
  const issues = [...foundPeers.issues];
  for (const peer of foundPeers.items) {
    if (byUid.has(peer.uid)) {
      issues.push(issueOf("peers", peer.uid, "E_NAME_DUPLICATE", "is there twice; the first is used"));
      continue;
    }
    byUid.set(peer.uid, peer);
    for (const name of [peer.name, peer.fqdn, peer.uid]) if (!byName.has(name)) byName.set(name, peer);
  }
  return {
    fqdn,
    peers: byUid,
    grants: foundGrants.items,
    issues: [...issues, ...foundGrants.issues].slice(0, MAX_ISSUES),
    clusters: new Set(clusters),
    find: (name) => byName.get(name),
  };
}

function readItems<T>(
  list: "peers" | "grants",
  raw: readonly JsonObject[],
  schema: z.ZodType<T>,
): { readonly items: readonly T[]; readonly issues: readonly Issue[] } {
  const issues: Issue[] = [];
  const items = raw.flatMap((item, index) => {
    const parsed = schema.safeParse(item);
    if (parsed.success) return [parsed.data];
    const field = parsed.error.issues[0]?.path.join(".") ?? "";
    const at = field === "" ? "" : `${field.slice(0, 64)} `;
    issues.push(issueOf(list, String(index), "invalid-item", `${at}${firstIssueText(parsed.error)}`.slice(0, 512)));
    return [];
  });
  return { items, issues };
}

/** Returns an issue with a path below `gateway`, the section that uses these items, because paths name sections only. */
function issueOf(list: string, item: string, code: string, text: string): Issue {
  const path = `gateway.domain.${list}.${item}`;
  return { path, code, message: `${path}: ${text}` };
}
