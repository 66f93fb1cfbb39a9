/** Codes of problems with the desired configuration. */
export type ConfigCode =
  | "E_ADDRESS_FORBIDDEN"
  | "E_BRIDGE_OVERLAP"
  | "E_CIDR_HOSTBITS"
  | "E_CIDR_INVALID"
  | "E_CLUSTER_FIELD"
  | "E_DEFAULT_ROUTE_BOTH"
  | "E_DEPENDENCY"
  | "E_ENUM"
  | "E_KEY_FORMAT"
  | "E_NAME_DUPLICATE"
  | "E_NAME_FORMAT"
  | "E_PORT_IN_USE"
  | "E_PORT_RANGE"
  | "E_PREFIX_MISMATCH"
  | "E_RANGE"
  | "E_REF_UNKNOWN"
  | "E_REQUIRED"
  | "E_SECRET_LENGTH"
  | "E_SUBNET_OVERLAP"
  | "E_UNSUPPORTED"
  | "E_UNSUPPORTED_ON_AGENT"
  | "E_UNSUPPORTED_PROTOCOL"
  | "E_V1_ON_V2";

/** Something wrong with an item, or with the section itself: then `id` is empty. */
export interface ConfigIssue {
  /** JSON path below `config`, for example `connectors.items.<id>.port`. */
  readonly path: string;
  readonly id: string;
  readonly code: ConfigCode;
  /** Led by the path; never holds a secret. */
  readonly message: string;
  /** The item it collides with. */
  readonly other?: string;
}

/** Makes an issue: `text` says what is wrong, without the path. */
export function configIssue(
  code: ConfigCode,
  { path, id }: { readonly path: string; readonly id: string },
  field: string,
  text: string,
): ConfigIssue {
  const full = field === "" ? path : `${path}.${field}`;
  return { path: full, id, code, message: `${full}: ${text}` };
}
