import { z } from "zod";
import { InputError } from "../../errors.ts";
import type { DocumentClaims } from "../../protocol/documents/claims.ts";
import {
  ClusterDocument,
  DomainDocument,
  KNOWN_FEATURES,
  NodeDocument,
  splitByFeatures,
  unknownSections,
  type SplitItems,
} from "../../protocol/documents/documents.ts";
import { RollbackCause } from "../../protocol/values/commit.ts";
import { describeIssues } from "../../protocol/channel/envelope.ts";
import { peekClaims } from "../../protocol/channel/jws.ts";
import { Jws, UnixMilliseconds, Version } from "../../protocol/values/values.ts";

/** The applied documents. One that is absent was never received, or the node is in no cluster. */
export interface Desired {
  readonly node?: Held<NodeDocument>;
  readonly cluster?: Held<ClusterDocument>;
  readonly domain?: Held<DomainDocument>;
}

export interface Held<Body> {
  readonly version: number;
  readonly sub: string;
  readonly receivedAt: number;
  readonly body: Body;
  /** The fields that this version does not know and ignores, a line each. */
  readonly passedOver: readonly string[];
  /** The newer version that was rolled back to this one. */
  readonly refused?: RefusedVersion;
}

/** A version that is not applied again, until a newer one arrives. `why` is the evidence, unless a person rolled it back. */
export const RefusedVersion = z.object({ version: Version, at: UnixMilliseconds, why: RollbackCause.optional() });
export type RefusedVersion = z.infer<typeof RefusedVersion>;

/** A verified document as it is stored. */
export const Stored = z.object({ jws: Jws, receivedAt: UnixMilliseconds, refused: RefusedVersion.optional() });
export type Stored = z.infer<typeof Stored>;
const MAX_LINES = 20;
const MAX_LINE = 256;

const bodies = { node: NodeDocument, cluster: ClusterDocument, domain: DomainDocument } as const;

/** A genuine document that cannot be used; `version` is the signed one. */
export class RefusedDocument extends InputError {
  static override readonly name = "RefusedDocument";
  readonly version: number;

  constructor(version: number, ...args: ConstructorParameters<typeof InputError>) {
    super(...args);
    this.version = version;
  }
}

/**
 * Checks that this version can use the body of a document.
 * @throws {RefusedDocument} `invalid-document` or `not-supported`.
 */
export function checkDocument(claims: DocumentClaims): void {
  const parsed = bodies[claims.name].safeParse(claims.body);
  if (!parsed.success) {
    const issues = bounded(describeIssues(parsed.error, claims.name));
    throw new RefusedDocument(claims.version, "invalid-document", issues.join("; "), { details: { issues } });
  }
  const missing = (parsed.data.requires ?? []).filter((feature) => !KNOWN_FEATURES.has(feature));
  if (missing.length > 0) {
    const message = `${claims.name} document requires ${missing.join(", ")}`;
    throw new RefusedDocument(claims.version, "not-supported", message, { details: { missing } });
  }
}

/** Returns the claims of a stored document, which was verified when it arrived. */
export function claimsOf({ jws }: Stored): DocumentClaims {
  return peekClaims("holdfast-document+jwt", jws);
}

/** Returns the documents with a stored one added. Throws what its schema rejects. */
export function withDocument(desired: Desired, stored: Stored): Desired {
  const claims = claimsOf(stored);
  const passedOver = bounded(unknownSections(claims.body).map((name) => `config.${name}: no section of this version`));
  const { receivedAt, refused } = stored;
  const isRefused = refused === undefined ? {} : { refused };
  const common = { version: claims.version, sub: claims.sub, receivedAt, passedOver, ...isRefused };
  switch (claims.name) {
    case "node":
      return { ...desired, node: { ...common, body: NodeDocument.parse(claims.body) } };
    case "cluster":
      return { ...desired, cluster: { ...common, body: ClusterDocument.parse(claims.body) } };
    case "domain": {
      const { peers, grants, ...body } = DomainDocument.parse(claims.body);
      const [split, splitGrants] = [splitByFeatures(peers), splitByFeatures(grants)];
      return {
        ...desired,
        domain: {
          ...common,
          body: { ...body, peers: split.usable, grants: splitGrants.usable },
          passedOver: bounded([...notSupported("peers", split), ...notSupported("grants", splitGrants)]),
        },
      };
    }
  }
}

/** Limits it to the length that a person reads. */
function bounded(lines: readonly string[]): readonly string[] {
  const cut = lines.map((line) => line.slice(0, MAX_LINE));
  if (cut.length <= MAX_LINES) return cut;
  return [...cut.slice(0, MAX_LINES - 1), `and ${cut.length - MAX_LINES + 1} more`];
}

function notSupported(list: string, { refused }: SplitItems): readonly string[] {
  return refused.map(({ index, missing }) => `${list}.${index}: not supported, it requires ${missing.join(", ")}`);
}
