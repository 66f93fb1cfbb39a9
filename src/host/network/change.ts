/** One change of the machine's network. The kernel applies `nft` atomically and `ip` line by line. */
export type Change =
  /** Lines for one `ip -batch -`: additions first, then removals. */
  | { readonly kind: "ip"; readonly lines: readonly string[] }
  /** Loads the whole table in one transaction; undefined deletes it. */
  | { readonly kind: "nft"; readonly text: string | undefined }
  | { readonly kind: "sysctl"; readonly values: readonly (readonly [name: string, value: string])[] }
  /** Fixed speed and duplex (ethtool(8)); absent: negotiated. */
  | {
      readonly kind: "ethtool";
      readonly link: string;
      readonly fixed?: { readonly speedMbps: number; readonly duplex: "full" | "half" };
    }
  /** Starts or stops our DHCP client on the link, optionally ignoring its lease's default route. */
  | { readonly kind: "dhcp"; readonly link: string; readonly run: boolean; readonly withoutGateway?: true }
  /** Sets the name servers; undefined restores the system's own. */
  | { readonly kind: "resolver"; readonly servers: readonly string[] | undefined };
