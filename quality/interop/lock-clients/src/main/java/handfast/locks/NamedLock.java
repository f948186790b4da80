package handfast.locks;

/** A lock of a client library. */
interface NamedLock {
    /** Waits until this thread holds it. */
    void take() throws Exception;

    void release() throws Exception;
}
