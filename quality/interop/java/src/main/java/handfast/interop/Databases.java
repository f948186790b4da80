package handfast.interop;

import com.alibaba.druid.pool.DruidDataSource;
import javax.sql.DataSource;

/**
 * The service's database, bare and behind the client's proxies. A proxy is made when it is first
 * used, since making it registers the database as a resource.
 */
final class Databases {
    private final DataSource bare;
    /** A pool of its own: a connection with a prepared branch on it is good for nothing else. */
    private final DataSource bareForXa;
    private DataSource at;
    private DataSource xa;

    private Databases(DataSource bare, DataSource bareForXa) {
        this.bare = bare;
        this.bareForXa = bareForXa;
    }

    static Databases at(String url, String urlForXa, String user, String password) {
        return new Databases(pool(url, user, password), pool(urlForXa, user, password));
    }

    private static DataSource pool(String url, String user, String password) {
        DruidDataSource pool = new DruidDataSource();
        pool.setUrl(url);
        pool.setUsername(user);
        pool.setPassword(password);
        pool.setMaxActive(50);
        pool.setMaxWait(20_000);
        return pool;
    }

    DataSource plain() {
        return bare;
    }

    synchronized DataSource at() {
        if (at == null) {
            at = Seata.at(bare);
        }
        return at;
    }

    synchronized DataSource xa() {
        if (xa == null) {
            xa = Seata.xa(bareForXa);
        }
        return xa;
    }
}
