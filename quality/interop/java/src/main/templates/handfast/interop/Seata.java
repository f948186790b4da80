package handfast.interop;

import ${seata.package}.core.context.RootContext;
import ${seata.package}.core.model.BranchType;
import ${seata.package}.core.model.GlobalLockConfig;
import ${seata.package}.rm.DefaultResourceManager;
import ${seata.package}.rm.GlobalLockExecutor;
import ${seata.package}.rm.GlobalLockTemplate;
import ${seata.package}.rm.RMClient;
import ${seata.package}.rm.datasource.DataSourceProxy;
import ${seata.package}.rm.datasource.exec.LockConflictException;
import ${seata.package}.rm.datasource.exec.LockWaitTimeoutException;
import ${seata.package}.rm.datasource.xa.DataSourceProxyXA;
import ${seata.package}.rm.tcc.TCCResource;
import ${seata.package}.rm.tcc.api.BusinessActionContext;
import ${seata.package}.tm.TMClient;
import ${seata.package}.tm.api.GlobalTransactionContext;
import ${seata.package}.tm.api.TransactionalExecutor;
import ${seata.package}.tm.api.TransactionalTemplate;
import ${seata.package}.tm.api.transaction.TransactionInfo;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.Callable;
import javax.sql.DataSource;

/** All that this service wants of the client, and the only class that names it. */
final class Seata {
    private static final String GROUP = "default_tx_group";

    private Seata() {}

    /** What a global is for. */
    interface Business {
        void run() throws Throwable;
    }

    /** Phase two of a TCC action. */
    interface Action {
        boolean confirm(Map<String, Object> context);

        boolean cancel(Map<String, Object> context);
    }

    static void start(String application) {
        TMClient.init(application, GROUP);
        RMClient.init(application, GROUP);
    }

    static DataSource at(DataSource source) {
        return new DataSourceProxy(source);
    }

    /** Whether a statement or a commit failed because the client got no global lock. */
    static boolean isLockFailure(Throwable failure) {
        for (Throwable it = failure; it != null; it = it.getCause()) {
            if (it instanceof LockConflictException || it instanceof LockWaitTimeoutException) {
                return true;
            }
        }
        return false;
    }

    static DataSource xa(DataSource source) {
        return new DataSourceProxyXA(source);
    }

    static String xid() {
        return RootContext.getXID();
    }

    static String join(String xid) {
        RootContext.bind(xid);
        return xid;
    }

    static String leave() {
        return RootContext.unbind();
    }

    static String status(String xid) throws Exception {
        return GlobalTransactionContext.reload(xid).getStatus().name();
    }

    /** Begins, runs and ends a global. What comes back is the client's own word for its end. */
    static String inGlobal(int timeoutMillis, Business business) throws Throwable {
        TransactionInfo wanted = new TransactionInfo();
        wanted.setName("interop");
        wanted.setTimeOut(timeoutMillis);
        // What the annotation has unless it is told otherwise.
        wanted.setLockRetryTimes(-1);
        try {
            new TransactionalTemplate().execute(new TransactionalExecutor() {
                @Override
                public Object execute() throws Throwable {
                    business.run();
                    return null;
                }

                @Override
                public TransactionInfo getTransactionInfo() {
                    return wanted;
                }
            });
            return "Committed";
        } catch (TransactionalExecutor.ExecutionException end) {
            if (end.getCode() == TransactionalExecutor.Code.BeginFailure) {
                throw end;
            }
            return end.getCode().name();
        }
    }

    /** As a method with {@code @GlobalLock} runs. */
    static String underGlobalLock(Callable<String> business) throws Throwable {
        return (String) new GlobalLockTemplate().execute(new GlobalLockExecutor() {
            @Override
            public Object execute() throws Throwable {
                return business.call();
            }

            @Override
            public GlobalLockConfig getGlobalLockConfig() {
                return null;
            }
        });
    }

    /** The methods that the client calls in phase two. */
    public static final class Ends {
        private final Action action;

        private Ends(Action action) {
            this.action = action;
        }

        public boolean confirm(BusinessActionContext context) {
            return action.confirm(context.getActionContext());
        }

        public boolean cancel(BusinessActionContext context) {
            return action.cancel(context.getActionContext());
        }
    }

    static void registerAction(String name, Action action) throws NoSuchMethodException {
        Class<?>[] arguments = {BusinessActionContext.class};
        TCCResource resource = new TCCResource();
        resource.setActionName(name);
        resource.setTargetBean(new Ends(action));
        resource.setCommitMethodName("confirm");
        resource.setCommitMethod(Ends.class.getMethod("confirm", arguments));
        resource.setCommitArgsClasses(arguments);
        resource.setPhaseTwoCommitKeys(new String[1]);
        resource.setRollbackMethodName("cancel");
        resource.setRollbackMethod(Ends.class.getMethod("cancel", arguments));
        resource.setRollbackArgsClasses(arguments);
        resource.setPhaseTwoRollbackKeys(new String[1]);
        DefaultResourceManager.get().registerResource(resource);
    }

    static long registerBranch(String action, Map<String, Object> context) throws Exception {
        Map<String, Object> data = new HashMap<>();
        data.put("actionContext", context);
        String text = new ObjectMapper().writeValueAsString(data);
        return DefaultResourceManager.get()
            .branchRegister(BranchType.TCC, action, null, RootContext.getXID(), text, null);
    }
}
