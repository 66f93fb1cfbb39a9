import type { Config } from "../../protocol/documents/documents.ts";

export interface ClusterRecord {
  readonly fqdn: string;
  readonly name: string;
  readonly domain: string;
  readonly createdAt: number;
  readonly tags: Readonly<Record<string, string>>;
  readonly config: Config;
  readonly members: readonly string[];
}
