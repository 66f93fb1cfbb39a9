/** Stores changes that nodes' documents contain. */
export interface Changes {
  /** Stores a change and the documents of the returned nodes in one transaction, then notifies those that are online. */
  apply(change: () => Iterable<string>): void;
}
